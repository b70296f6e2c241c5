package ratelimit

import "os"

// scaled returns how often a drill runs: the count that speaks for itself under
// DRILLS=full, and a tenth of it otherwise.
func scaled(full int) int {
	if os.Getenv("DRILLS") == "full" {
		return full
	}
	return max(1, full/10)
}
