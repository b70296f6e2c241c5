package literal

import "strings"

// Nearest returns the one of known that s is most likely a misspelling of, or
// "" when none is near. Of several equally near ones it is the first.
func Nearest(s string, known []string) string {
	s = strings.ToLower(s)
	best, least := "", max(2, len(s)/3)+1
	for _, k := range known {
		if d := distance(s, strings.ToLower(k)); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to add, drop, change or swap with their
// neighbour that turn a into b (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
