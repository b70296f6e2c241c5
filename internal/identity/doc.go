// Package identity tells who is calling: which gateway key a request carries,
// what that key may do, whom its calls are charged to, and from which address
// they come.
//
// # Gateway keys
//
// A key is 53 bytes of ASCII:
//
//	"agw_" || 43 base62 characters || 6 base62 characters
//
// The alphabet is 0-9A-Za-z, so a key survives a double click, a shell and a
// URL. The first group is a 256-bit random number, the second the CRC-32 (IEEE)
// of the 47 bytes before it; both are big-endian and padded with '0'. The
// checksum authenticates nothing: it lets a typing mistake and a scanner's
// false find be told from a key without a look-up. A key is stored and found
// as the SHA-256 of its 53 bytes. It is a uniform 256-bit number, so a slow
// hash would only slow the gateway, and a map keyed by digest leaves the time
// of a look-up nothing to tell.
//
// # What is not promised
//
// Whoever holds a key is its caller; there is no proof of possession. Keys are
// not wiped from memory.
//
// The package takes plain values and http.Header, never a request, and the time
// as an argument. Everything in it is safe for use by many goroutines.
package identity
