// Package vault keeps the credentials that services ask for, and puts them on
// outbound requests. No function of it returns a stored secret: a Credential is
// something that acts on a request.
//
// # At rest
//
// A field of a credential is sealed as
//
//	key_id(1) || nonce(12) || AES-256-GCM(data key, plaintext, ad)
//
// with a random nonce, a 16-byte tag, and the row's identity as associated data:
//
//	ad = "agw/v1" || len||tenant || len||service || len||user || len||field || version
//
// where each len is 4 bytes and version 8, big-endian. The lengths keep "ab"+"c"
// from being "a"+"bc". A credential that is for one host alone has len||host behind
// that. So a sealed text opens only in the row, field and version
// that it was made for: whoever can write to the store but not unseal can delete
// credentials, or put a whole row back to an earlier version of itself, but not
// hand one user's credential to another.
//
// Each person's credentials are sealed under data keys of that person's, whose tenant
// is "human:USER"; those that are shared under the keys of the tenant "". So one data
// key opens what one person has, and makes nothing that opens as another's; and with a
// person's last credential the keys go, too. What an earlier version sealed of persons'
// is under the keys of "" until it is set, renewed or sealed anew (Reseal): it opens all
// the same.
//
// A tenant's data keys are numbered 1 to 255, which is key_id; 0 is none. Each
// is 32 random bytes, wrapped as
//
//	nonce(12) || AES-256-GCM(wrapping key, data key, "agw/v1/data-key" || len||tenant || number(1))
//
// The wrapping key and every other key that the program needs are derived from
// the vault key (KEK) by HKDF-SHA-256 (RFC 5869) without salt, with the info
// "agw/v1/" and a label, so that no key does two jobs. Random nonces are good
// for 2^32 seals under one data key (NIST SP 800-38D section 8.3), which no
// amount of setting credentials by hand comes near.
//
// # In memory
//
// A Vault holds the rows sealed and opens one for the call that needs it. Of a
// credential that was used it keeps what finds it in answers (package redact),
// until the row or any other changes. Nothing hides a secret from who can read the
// process's memory, where the vault key is, too.
package vault
