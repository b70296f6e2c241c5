package delegation

import "strings"

// maxDigits bounds the numbers that are compared.
const maxDigits = 64

// isDecimal reports whether a JSON number is written without an exponent and is not
// a zero with a minus: then how it is written is how large it is.
func isDecimal(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	for i := range len(digits) {
		if c := digits[i]; c != '.' && (c < '0' || c > '9') {
			return false
		}
	}
	return digits != "" && len(digits) <= maxDigits && (len(s) == len(digits) || strings.Trim(digits, "0.") != "")
}

// compareDecimals orders two numbers that isDecimal takes, exactly: as floats,
// 9007199254740993 would be no more than 9007199254740992.
func compareDecimals(a, b string) int {
	aDigits, aBelow := strings.CutPrefix(a, "-")
	bDigits, bBelow := strings.CutPrefix(b, "-")
	switch {
	case aBelow && bBelow:
		return compareDigits(bDigits, aDigits)
	case aBelow:
		return -1
	case bBelow:
		return 1
	}
	return compareDigits(aDigits, bDigits)
}

func compareDigits(a, b string) int {
	aWhole, aPart, _ := strings.Cut(a, ".")
	bWhole, bPart, _ := strings.Cut(b, ".")
	if len(aWhole) != len(bWhole) { // JSON has no leading zeros
		return len(aWhole) - len(bWhole)
	}
	if order := strings.Compare(aWhole, bWhole); order != 0 {
		return order
	}
	return strings.Compare(strings.TrimRight(aPart, "0"), strings.TrimRight(bPart, "0"))
}
