package registry

import (
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"agentgw/internal/literal"

	"gopkg.in/yaml.v3"
)

// scalar returns the text of a single value as it stands in the file, or false
// after recording that there is none.
func (r *reader) scalar(e entry) (string, bool) {
	if e.value.Kind != yaml.ScalarNode {
		if e.value.Kind != yaml.AliasNode { // which forbid has refused
			r.fail(e.value, e.path, "must be a single value, not %s", kindOf(e.value))
		}
		return "", false
	}
	if isNull(e.value) {
		r.fail(e.value, e.path, "has no value (put null and ~ in quotes if they are meant as text)")
		return "", false
	}
	return e.value.Value, true
}

// text reads a text that is not empty and holds no control characters. Bare
// words keep their letters, whatever YAML would make of them: no, on, 0123.
func (r *reader) text(e entry) string {
	s, ok := r.scalar(e)
	switch {
	case !ok:
	case s == "":
		r.fail(e.value, e.path, "is empty")
	case strings.ContainsFunc(s, unicode.IsControl):
		r.fail(e.value, e.path, "holds a control character")
	default:
		return s
	}
	return ""
}

func (r *reader) optionalText(o *object, name string) string {
	if e, ok := o.get(name); ok {
		return r.text(e)
	}
	return ""
}

func (r *reader) needText(o *object, name string) string {
	if e, ok := o.need(name); ok {
		return r.text(e)
	}
	return ""
}

// word is one text of a list.
type word struct {
	entry
	text string
}

// words reads a list of texts, none of them twice.
func (r *reader) words(e entry) []word {
	var list []word
	seen := map[string]entry{}
	for _, item := range r.items(e) {
		s := r.text(item)
		if s != "" && once(r, seen, s, item) {
			list = append(list, word{item, s})
		}
	}
	return list
}

// texts is words for a caller that needs no places.
func (r *reader) texts(e entry) []string {
	var list []string
	for _, w := range r.words(e) {
		list = append(list, w.text)
	}
	return list
}

// once refuses a value that stood in an earlier entry, naming both places.
func once[K comparable](r *reader, seen map[K]entry, value K, e entry) bool {
	if first, ok := seen[value]; ok {
		r.fail(e.value, e.path, "is given twice; the first is at %d:%d", first.value.Line, first.value.Column)
		return false
	}
	seen[value] = e
	return true
}

// bareScalar is scalar for what is no text, and so may not stand in quotes.
func (r *reader) bareScalar(e entry, what string) (string, bool) {
	s, ok := r.scalar(e)
	if ok && e.value.Style&quoted != 0 {
		r.fail(e.value, e.path, "%s is text: write a %s without quotes", literal.Quote(s), what)
		return "", false
	}
	return s, ok
}

// read applies one of literal's readers.
func read[T any](r *reader, e entry, s string, ok bool, parse func(string) (T, error)) T {
	var zero T
	if !ok {
		return zero
	}
	v, err := parse(s)
	if err != nil {
		r.fail(e.value, e.path, "%v", err)
		return zero
	}
	return v
}

func (r *reader) decimal(e entry) float64 {
	s, ok := r.bareScalar(e, "number")
	return read(r, e, s, ok, literal.Decimal)
}

func (r *reader) whole(e entry) int {
	s, ok := r.bareScalar(e, "number")
	return read(r, e, s, ok, literal.Whole)
}

func (r *reader) boolean(e entry) bool {
	s, ok := r.bareScalar(e, "boolean")
	return read(r, e, s, ok, literal.Bool)
}

func (r *reader) optionalBoolean(o *object, name string) bool {
	if e, ok := o.get(name); ok {
		return r.boolean(e)
	}
	return false
}

func (r *reader) duration(e entry) time.Duration {
	s, ok := r.scalar(e)
	return read(r, e, s, ok, literal.Duration)
}

func (r *reader) optionalTime(o *object, name string) time.Time {
	e, ok := o.get(name)
	if !ok {
		return time.Time{}
	}
	s, ok := r.scalar(e)
	return read(r, e, s, ok, literal.Time)
}

func (r *reader) size(e entry) int64 {
	s, ok := r.scalar(e)
	return read(r, e, s, ok, literal.Size)
}

// choice reads one of the given words; absent, it is the first of them. What is
// none of them is not quoted: of a credential it may be the secret itself.
func (r *reader) choice(o *object, name string, words ...string) string {
	e, ok := o.get(name)
	if !ok {
		return words[0]
	}
	s, ok := r.scalar(e)
	switch {
	case !ok:
	case slices.Contains(words, s):
		return s
	default:
		r.fail(e.value, e.path, "is none of %s%s", strings.Join(words, ", "), meant(literal.Nearest(s, words)))
	}
	return words[0]
}

var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// IsID reports whether s can name a key, tenant, service, action or rule.
func IsID(s string) bool { return idPattern.MatchString(s) }

const idRule = "is not an id: up to 64 of a-z 0-9 . _ - beginning with a letter or digit"

// id reads an id from a value.
func (r *reader) id(e entry) string {
	s := r.text(e)
	if s != "" && !IsID(s) {
		r.fail(e.value, e.path, "%s %s", literal.Quote(s), idRule)
		return ""
	}
	return s
}

// idName refuses an entry whose name is not an id.
func (r *reader) idName(e entry) {
	if !IsID(e.name) {
		r.fail(e.key, e.path, "%s %s", literal.Quote(e.name), idRule)
	}
}
