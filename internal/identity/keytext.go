package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/big"
	"strings"

	"agentgw/internal/secret"
)

const (
	keyPrefix   = "agw_"
	randomChars = 43 // the least n with 62^n >= 2^256
	checkChars  = 6  // the least n with 62^n >= 2^32
	checkStart  = len(keyPrefix) + randomChars
	keyLen      = checkStart + checkChars

	base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewKey makes a key from 256 bits of the operating system's randomness, and
// returns its text, which exists nowhere else, and the digest to store.
func NewKey() (text secret.Text, digest [32]byte) {
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		// crypto/rand ends the process rather than return one; a key made
		// of anything less than randomness must not come into being.
		panic(fmt.Sprintf("identity: no randomness for a key: %v", err))
	}
	s := keyFrom(seed)
	return secret.New(s), sha256.Sum256([]byte(s))
}

// keyFrom spells the key of a 256-bit number. The number is converted as a
// whole: taking each byte modulo 62 would favour the first eight characters.
func keyFrom(seed [32]byte) string {
	b := make([]byte, 0, keyLen)
	b = append(b, keyPrefix...)
	n, base, digit := new(big.Int).SetBytes(seed[:]), big.NewInt(62), new(big.Int)
	b = b[:checkStart]
	for i := checkStart - 1; i >= len(keyPrefix); i-- {
		n.DivMod(n, base, digit)
		b[i] = base62[digit.Int64()]
	}
	check := checksum(string(b))
	return string(append(b, check[:]...))
}

// checksum spells the CRC-32 (IEEE 802.3) of s. It goes through the table itself:
// crc32.ChecksumIEEE lets its argument escape, which is an allocation a call,
// and is no faster for so few bytes.
func checksum(s string) (out [checkChars]byte) {
	sum := ^uint32(0)
	for i := range len(s) {
		sum = crc32.IEEETable[byte(sum)^s[i]] ^ sum>>8
	}
	sum = ^sum
	for i := checkChars - 1; i >= 0; i-- {
		out[i] = base62[sum%62]
		sum /= 62
	}
	return out
}

// LooksLikeKey reports whether s has the shape of a gateway key, with whatever
// checksum. It is for keeping keys from leaving: a mistyped key is still most
// of a key.
func LooksLikeKey(s string) bool {
	if len(s) != keyLen || s[:len(keyPrefix)] != keyPrefix {
		return false
	}
	for i := len(keyPrefix); i < len(s); i++ {
		c := s[i]
		if !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z') {
			return false
		}
	}
	return true
}

// ParseKey returns the digest under which the key s would be found, or false
// where s is not spelled like a key or its checksum is wrong. It looks nothing
// up, so a stranger's guesses cost a checksum each.
func ParseKey(s string) (digest [32]byte, ok bool) {
	if !LooksLikeKey(s) {
		return digest, false
	}
	if check := checksum(s[:checkStart]); string(check[:]) != s[checkStart:] {
		return digest, false
	}
	var b [keyLen]byte // []byte(s) would be an allocation on every call
	copy(b[:], s)
	return sha256.Sum256(b[:]), true
}

// HasKey reports whether a gateway key stands somewhere in s, with whatever checksum.
func HasKey(s string) bool {
	for at := strings.Index(s, keyPrefix); at >= 0; {
		if s = s[at:]; len(s) >= keyLen && LooksLikeKey(s[:keyLen]) {
			return true
		}
		s = s[len(keyPrefix):]
		at = strings.Index(s, keyPrefix)
	}
	return false
}

// HasKeyInURL is HasKey for a path or a query, which whoever reads it may undo the escapes
// of first: a key counts as it is written and as it is meant. What is no escape stands for
// itself.
func HasKeyInURL(s string) bool {
	if HasKey(s) {
		return true
	}
	if !strings.Contains(s, "%") {
		return false
	}
	meant := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && len(s)-i > 2 {
			if b, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				meant = append(meant, b...)
				i += 2
				continue
			}
		}
		meant = append(meant, s[i])
	}
	return HasKey(string(meant))
}
