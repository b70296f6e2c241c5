package config

import (
	"fmt"

	"github.com/spf13/pflag"
)

// flagValue is the text of a flag; what it means is judged with all the rest,
// so that a mistake in a flag is reported beside the others.
type flagValue struct {
	given
	kind string
}

func (f *flagValue) Set(v string) error { return f.Decode(v) }
func (f *flagValue) String() string     { return "" } // pflag prints it as the default, which the help text states
func (f *flagValue) Type() string       { return f.kind }

// alias is the short name of a flag that people type.
var alias = map[string]string{"data": "data-dir"}

// Flags adds a flag for every setting to fs.
func Flags(fs *pflag.FlagSet) {
	for _, r := range rows {
		fs.Var(&flagValue{kind: r.kind}, r.flag(), fmt.Sprintf("%s (default %s)", r.meaning, r.defaultText()))
	}
	for short, long := range alias {
		if fs.Lookup(short) == nil {
			fs.Var(fs.Lookup(long).Value, short, "the same as --"+long)
		}
	}
}

// flagOf returns what a flag was given, if fs has it at all.
func flagOf(fs *pflag.FlagSet, r row) given {
	if fs == nil {
		return given{}
	}
	f := fs.Lookup(r.flag())
	if f == nil {
		return given{}
	}
	v, ok := f.Value.(*flagValue)
	if !ok {
		return given{}
	}
	return v.given
}
