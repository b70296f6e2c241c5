package admin

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"agentgw/internal/secret"
)

// CheckToken says why a text must not be the operators' token: it cannot be sent
// in a header, or is the first that anybody would try. Where others than this
// machine can reach the operators' address (exposed) it has to be longer, as they
// can try as often as they like. It repeats nothing of the text.
func CheckToken(token secret.Text, exposed bool) error {
	text := token.Reveal()
	switch {
	case text == "":
		return errors.New("is empty")
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("holds a space, or another character that no token has")
	case len(text) < 8 || wellKnown(text) || repeats(text):
		return errors.New("is the first that anybody would try")
	case exposed && len(text) < 16:
		return errors.New("is too short for an operators' address that other machines can reach")
	}
	return nil
}

var (
	decoration = regexp.MustCompile(`[^a-z]+`)
	famous     = []string{
		"admin", "adminadmin", "admintoken", "administrator", "agentgate", "agentgw", "changeit", "changeme", "default", "example",
		"letmein", "operator", "pass", "passw", "password", "placeholder", "qwerty", "qwertyuiop", "replaceme", "root", "secret", "test", "todo", "token",
		"yourtokenhere", "xxx", "abc", "abcdefgh",
	}
)

// wellKnown reports whether a text is one word of those that stand in examples,
// whatever its case and whatever digits and signs are put to it, or digits alone.
func wellKnown(text string) bool {
	word := decoration.ReplaceAllString(strings.ToLower(text), "")
	digits := len(text) - len(word)
	return slices.Contains(famous, word) && digits <= 6 || strings.Trim(text, "0123456789") == "" && len(text) < 16
}

// repeats reports whether a text is a shorter one, of at most eight letters, over
// and over.
func repeats(text string) bool {
	period := strings.Index((text + text)[1:], text) + 1
	return period < len(text) && period <= 8
}
