// Package literal reads the written forms that the settings and the registry
// share: plain decimals, durations with a unit, sizes and booleans. It is
// stricter than strconv and YAML on purpose: what could be read in two ways
// (010, 1_000, 0x1F, 1e3, yes, a duration without a unit) is refused, so that
// nobody's limit is silently another than the one that was written.
//
// Errors say what is wrong with the text and end a sentence that begins with
// the setting's name. They quote the text, as Quote does, so a secret must not be
// read here.
package literal

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	decimal  = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)
	whole    = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
	size     = regexp.MustCompile(`^(0|[1-9][0-9]*)(KiB|MiB|GiB)?$`)
	duration = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`)
	days     = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?d`)
	bare     = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	endless  = regexp.MustCompile(`(?i)^[-+]?\.?(nan|inf|infinity)$`)
)

// Decimal reads a number that is not negative, such as 20 or 0.5.
func Decimal(s string) (float64, error) {
	if err := plain(s); err != nil {
		return 0, err
	}
	if !decimal.MatchString(s) {
		return 0, fmt.Errorf("%s is not a plain decimal number such as 20 or 0.5", Quote(s))
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return 0, fmt.Errorf("%s is too large", Quote(s))
	}
	return f, nil
}

// Whole reads a whole number that is not negative.
func Whole(s string) (int, error) {
	if err := plain(s); err != nil {
		return 0, err
	}
	if !whole.MatchString(s) {
		return 0, fmt.Errorf("%s is not a plain whole number such as 20", Quote(s))
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("%s is too large", Quote(s))
	}
	return n, nil
}

// plain names the two mistakes that deserve more than "not a number".
func plain(s string) error {
	switch {
	case endless.MatchString(s):
		return fmt.Errorf("%s is not a finite number", Quote(s))
	case strings.HasPrefix(s, "-"):
		return fmt.Errorf("%s is negative", Quote(s))
	}
	return nil
}

// Duration reads a length of time with a unit, such as 250ms, 30s or 1h30m.
// A bare 0, which is the same in every unit, is taken too.
func Duration(s string) (time.Duration, error) {
	switch {
	case s == "0":
		return 0, nil
	case strings.HasPrefix(s, "-"):
		return 0, fmt.Errorf("%s is negative", Quote(s))
	case bare.MatchString(s):
		return 0, fmt.Errorf("%s has no unit: write 250ms, 30s or 10m", Quote(s))
	case days.MatchString(s):
		return 0, fmt.Errorf("%s is in days, which are written in hours%s", Quote(s), inHours(s))
	case !duration.MatchString(s):
		return 0, fmt.Errorf("%s is not a duration such as 250ms, 30s or 10m", Quote(s))
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%s is too long", Quote(s))
	}
	return d, nil
}

// inHours writes whole days in hours, for a reader who has to.
func inHours(s string) string {
	n, err := strconv.Atoi(strings.TrimSuffix(s, "d"))
	if err != nil || n > math.MaxInt/24 {
		return ": 1d is 24h"
	}
	return fmt.Sprintf(": %dh", n*24)
}

// Size reads a number of bytes, such as 4096 or 10MiB.
func Size(s string) (int64, error) {
	if err := plain(s); err != nil {
		return 0, err
	}
	m := size.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%s is not a size such as 4096, 64KiB, 10MiB or 1GiB", Quote(s))
	}
	shift := map[string]uint{"": 0, "KiB": 10, "MiB": 20, "GiB": 30}[m[2]]
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%s is too large", Quote(s))
	}
	return n << shift, nil
}

// Bool reads true or false, and nothing else.
func Bool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%s is not a boolean: write true or false", Quote(s))
}

// OneOf returns s if it is one of the choices.
func OneOf(s string, choices ...string) (string, error) {
	for _, c := range choices {
		if s == c {
			return s, nil
		}
	}
	hint := ""
	if near := Nearest(s, choices); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return "", fmt.Errorf("%s is none of %s%s", Quote(s), strings.Join(choices, ", "), hint)
}

// MaxRPS is the highest rate that can be kept: one call a nanosecond.
const MaxRPS = 1e9

// CheckRate says what is wrong with a limit of rps calls a second and a burst.
// A burst of more than an hour of its rate is no limit that anybody meant, and
// a rate of less than one call an hour can have no burst at all.
func CheckRate(rps float64, burst int) error {
	switch {
	case rps == 0 && burst == 0:
		return nil
	case rps == 0:
		return errors.New("a burst without its rate limits nothing: give the rate, or 0 for both")
	case rps > MaxRPS:
		return fmt.Errorf("a rate over %d a second cannot be kept", int64(MaxRPS))
	case float64(burst) > rps*3600:
		return fmt.Errorf("a burst of %d is more than an hour of its rate of %s a second", burst, Number(rps))
	}
	return nil
}

// DefaultBurst is the burst of a rate that was given alone.
func DefaultBurst(rps float64) int { return int(max(1, math.Ceil(rps))) }

// Number prints f as it would be written here.
func Number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// Span is a duration as people write it: 1m and not 1m0s, 24h and not 24h0m0s.
func Span(d time.Duration) string {
	s := d.String()
	for _, idle := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, idle) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// Quote quotes a text for an error, masked (see Mask), and cuts what is long.
func Quote(s string) string {
	s = Mask(s) // before a key is cut to what does not look like one
	if r := []rune(s); len(r) > 64 {
		return strconv.Quote(string(r[:64])) + "..."
	}
	return strconv.Quote(s)
}
