package oidc

import "math/big"

// rocaPrimes are the small primes by which a weak modulus gives itself away.
var rocaPrimes = [...]int64{
	3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137,
	139, 149, 151, 157, 163, 167,
}

// isROCA reports whether an RSA modulus has the form that a family of smartcards
// gave to theirs, which can be factored (CVE-2017-15361; Nemec and others, The Return
// of Coppersmith's Attack, 2017, section 3.3): modulo each of the first primes it is
// a power of 65537. Of others hardly one is.
func isROCA(n *big.Int) bool {
	for _, p := range rocaPrimes {
		rest := new(big.Int).Mod(n, big.NewInt(p)).Int64()
		if !isPower(rest, 65537%p, p) {
			return false
		}
	}
	return true
}

// isPower reports whether n is a power of g modulo p, of which g is no multiple.
func isPower(n, g, p int64) bool {
	for power := int64(1); ; {
		if power == n {
			return true
		}
		if power = power * g % p; power == 1 {
			return false
		}
	}
}
