package literal

import (
	"fmt"
	"time"
)

// Time reads an instant with its zone, such as 2026-12-01T00:00:00Z (RFC 3339), of
// the years 1970 to 2199: nanoseconds since 1970 count them in 64 bits.
func Time(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("%s is not a time with its zone such as 2026-12-01T00:00:00Z", Quote(s))
	case t.UTC().Year() < 1970 || t.UTC().Year() >= 2200:
		return time.Time{}, fmt.Errorf("%s is not between 1970 and 2199", Quote(s))
	}
	return t.UTC(), nil
}
