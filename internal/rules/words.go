package rules

import (
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/common/operators"
)

// typed are the findings of CEL's checker that name types, and how they are told to
// who writes a registry and knows texts and numbers.
var typed = []struct {
	form *regexp.Regexp
	told func(found []string) string
}{
	{regexp.MustCompile(`^found no matching overload for '(.+)' applied to '(?:(.+)\.)?\((.*)\)'$`), func(found []string) string {
		name := found[1]
		if symbol, ok := operators.FindReverse(name); ok {
			name = symbol
		}
		if name == "" { // of a ?: b and a[b], which have no symbol of their own
			name = strings.ReplaceAll(found[1], "_", "")
		}
		return "'" + name + "' is not for " + all(found[2], found[3])
	}},
	{regexp.MustCompile(`^expected type '(.+)' but found '(.+)'$`), func(found []string) string {
		return "must be " + typeWords(found[1]) + ", not " + typeWords(found[2])
	}},
	{regexp.MustCompile(`^expected type of field '(.+)' is '(.+)' but provided type is '(.+)'$`), func(found []string) string {
		return "the field '" + found[1] + "' must be " + typeWords(found[2]) + ", not " + typeWords(found[3])
	}},
	{regexp.MustCompile(`^type '(.+)' does not support field selection$`), func(found []string) string {
		return typeWords(found[1]) + " has no members"
	}},
	{regexp.MustCompile(`^expression of type '(.+)' cannot be range of a comprehension \(.*\)$`), func(found []string) string {
		return "goes over a list or a map, not " + typeWords(found[1])
	}},
}

// inTypes puts a finding that names types into words.
func inTypes(what string) string {
	for _, t := range typed {
		if found := t.form.FindStringSubmatch(what); found != nil {
			return t.told(found)
		}
	}
	return what
}

// all are the types of the value that a function is a member of, if it is one, and of
// the arguments.
func all(member, arguments string) string {
	var list []string
	if member != "" {
		list = append(list, typeWords(member))
	}
	for arguments != "" {
		depth := 0
		end := strings.IndexFunc(arguments, func(c rune) bool {
			depth += strings.Count("(", string(c)) - strings.Count(")", string(c))
			return c == ',' && depth == 0
		})
		if end < 0 {
			end = len(arguments)
		}
		list = append(list, typeWords(arguments[:end]))
		arguments = strings.TrimLeft(arguments[end:], ", ")
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(slices.Compact(list), " and ")
}

var words = map[string]string{
	"string": "a text", "bool": "true or false", "int": "a whole number", "uint": "an unsigned number", "double": "a number with a point",
	"null": "null", "duration": "a duration", "timestamp": "a time", "bytes": "bytes", "list": "a list", "map": "a map",
	"dyn": "any value", "any": "any value", "type": "a type",
}

// typeWords is a type, as CEL's checker writes it, as who writes a registry knows it.
func typeWords(t string) string {
	name, inner, _ := strings.Cut(t, "(")
	inner = strings.TrimSuffix(inner, ")")
	switch {
	case name == "wrapper":
		return typeWords(inner) + " or null"
	case name == "optional_type":
		return typeWords(inner) + " or none"
	case words[name] != "":
		return words[name]
	}
	return "a " + name
}
