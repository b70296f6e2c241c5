// Package config reads the settings of the process.
//
// A setting comes from its flag, else from its AGENTGATE_* variable, else from
// the server: section of the registry, else it is the default. Only the text
// that counts is judged, so a flag helps against a malformed variable; the
// registry's section is judged in any case, because it is a file that others
// start from too. All problems are reported at once, each with the setting and
// where its value came from, and none with a secret.
//
// Names differ by place only in form: AGENTGATE_RATE_KEY_RPS, --rate-key-rps,
// rate_key_rps. There are no nested names and no variables for single services
// or tenants; a name that leads nowhere is an error.
//
// This is the only package that knows envconfig.
package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentgw/internal/literal"

	"github.com/spf13/pflag"
)

// Problem is one thing that is wrong with the settings.
type Problem struct {
	Where string // flag, environment, or file:line:column
	Name  string // of the setting as that place writes it
	What  string
}

func (p Problem) Error() string { return p.Where + ": " + p.Name + ": " + p.What }

// Problems is everything that is wrong. As an error it prints one a line.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// origin is a place that a value can come from.
type origin struct {
	where string // flag, environment, file:line:column; "": default
	name  string // the setting's name there
}

func (o origin) String() string {
	if o.where == "" {
		return "default"
	}
	return strings.TrimSpace(o.where + " " + o.name)
}

// candidate is a text that a place has for a setting.
type candidate struct {
	given
	origin
	doubt bool // what it is, is open: see Setting.Doubt
}

// Load reads every setting. fs may lack flags, or be nil; server is the
// registry's section. The error is Problems.
//
// Beside Problems the Settings are what could be read, for a check of them
// against other things, so that everything is told at once; Sure says which
// those are. Nothing may be run with them. Settings are nil where not even the
// environment could be read.
func Load(fs *pflag.FlagSet, environ []string, server []Setting) (*Settings, error) {
	env, err := readEnvironment(environ)
	if err != nil {
		return nil, Problems{{Where: "environment", Name: prefix + "*", What: err.Error()}}
	}
	l := newLoading()
	l.unknownVariables(environ)
	l.unknownMembers(server)
	for _, r := range rows {
		if r.secret {
			continue
		}
		l.take(r, l.candidates(fs, env, server, r))
	}
	for _, r := range rows {
		if r.secret && !strings.HasSuffix(r.name, "_FILE") {
			l.takeSecret(fs, env, server, r)
		}
	}
	l.judge()
	if len(l.problems) > 0 {
		return l.settings, l.problems
	}
	return l.settings, nil
}

// RegistryPath returns the path of the registry file, which must be known
// before the rest can be: the file has settings itself. explicit is whether
// somebody named it.
func RegistryPath(fs *pflag.FlagSet, environ []string) (path string, explicit bool, err error) {
	env, err := readEnvironment(environ)
	if err != nil {
		return "", false, err
	}
	l := newLoading()
	r := rowOf("REGISTRY")
	l.take(r, l.candidates(fs, env, nil, r))
	if len(l.problems) > 0 {
		return "", false, l.problems
	}
	return l.settings.Registry, l.settings.origins[r.variable()].where != "", nil
}

// loading is one Load.
type loading struct {
	settings *Settings
	problems Problems
}

func newLoading() *loading {
	return &loading{settings: &Settings{
		origins: map[string]origin{}, texts: map[string]string{}, doubts: map[string]bool{}, derived: map[string]bool{},
	}}
}

func (l *loading) fail(o origin, format string, args ...any) {
	l.problems = append(l.problems, Problem{Where: o.where, Name: o.name, What: fmt.Sprintf(format, args...)})
}

// candidates returns what each place gives for a setting, the strongest first.
func (l *loading) candidates(fs *pflag.FlagSet, env *environment, server []Setting, r row) []candidate {
	list := []candidate{
		{flagOf(fs, r), origin{"flag", "--" + r.flag()}, false},
		{env.field(r), origin{"environment", r.variable()}, false},
	}
	for _, s := range server {
		if s.Name == r.member() || s.Name == "" && s.Doubt {
			list = append(list, candidate{given{s.Value, true}, origin{s.Where, "server." + r.member()}, s.Doubt})
		}
	}
	return slices.DeleteFunc(list, func(c candidate) bool { return !c.set })
}

// take reads the strongest text, or the default. A member of the registry is
// read even where it does not count, for its mistakes.
func (l *loading) take(r row, candidates []candidate) {
	if len(candidates) == 0 {
		l.settings.origins[r.variable()] = origin{}
		l.settings.texts[r.variable()] = r.defaultText()
		if r.def != "" {
			if err := r.read(l.settings, r.def); err != nil {
				panic("config: the default of " + r.name + ": " + err.Error())
			}
		}
		return
	}
	for i, c := range candidates {
		if i > 0 && !strings.HasPrefix(c.name, "server.") {
			continue
		}
		into := l.settings
		if i > 0 {
			into = &Settings{}
		}
		if c.doubt && i == 0 {
			l.settings.doubts[r.variable()] = true
		}
		if !c.doubt || c.text != "" {
			if err := l.read(r, into, c); err != nil {
				l.fail(c.origin, "%v", err)
				l.settings.doubts[r.variable()] = true
			}
		}
		if i == 0 {
			l.settings.origins[r.variable()] = c.origin
			l.settings.texts[r.variable()] = c.text
		}
	}
}

// read refuses a text of nothing but spaces for every setting alike: it is
// neither a value nor the empty text that means unset.
func (l *loading) read(r row, s *Settings, c candidate) error {
	switch {
	case c.text == "":
		return fmt.Errorf("is empty")
	case strings.TrimSpace(c.text) == "":
		return fmt.Errorf("holds nothing but spaces")
	}
	return r.read(s, c.text)
}

// takeSecret reads a secret or its file, whichever the strongest place gives.
func (l *loading) takeSecret(fs *pflag.FlagSet, env *environment, server []Setting, r row) {
	doubtful := func(c candidate) bool { return c.doubt } // which settles nothing
	found := slices.DeleteFunc(l.candidates(fs, env, server, r), doubtful)
	file := rowOf(r.name + "_FILE")
	var files []candidate
	if file.name != "" {
		files = slices.DeleteFunc(l.candidates(fs, env, server, file), doubtful)
	}
	l.settings.origins[r.variable()] = origin{}
	l.settings.texts[r.variable()] = r.defaultText()
	if file.name != "" {
		l.settings.origins[file.variable()] = origin{}
		l.settings.texts[file.variable()] = file.defaultText()
	}
	use := r
	var c candidate
	switch {
	case len(found) == 0 && len(files) == 0:
		return
	case len(files) == 0:
		c = found[0]
	case len(found) == 0:
		c, use = files[0], file
	case place(found[0]) == place(files[0]):
		l.fail(found[0].origin, "is given, and %s too: which one counts?", files[0].name)
		return
	case place(found[0]) < place(files[0]):
		c = found[0]
	default:
		c, use = files[0], file
	}
	if err := l.read(use, l.settings, c); err != nil {
		l.fail(c.origin, "%v", err)
	}
	l.settings.origins[r.variable()] = c.origin
	l.settings.texts[r.variable()] = "[redacted]"
	if use.name == file.name {
		l.settings.origins[file.variable()] = c.origin
		l.settings.texts[file.variable()] = c.text
	}
}

// place orders the places, the strongest first.
func place(c candidate) int {
	switch c.where {
	case "flag":
		return 0
	case "environment":
		return 1
	}
	return 2
}

// unknownMembers reports the names in the registry's section that no setting
// has, and the one that has no sense there.
func (l *loading) unknownMembers(server []Setting) {
	var names []string
	for _, r := range rows {
		names = append(names, r.member())
	}
	for _, s := range server {
		o := origin{s.Where, "server." + s.Name}
		switch {
		case s.Name == "": // doubt of all of them
		case s.Name == "registry":
			l.fail(o, "a registry cannot say where it lies itself")
		case !slices.Contains(names, s.Name):
			hint := ""
			if near := literal.Nearest(s.Name, names); near != "" {
				hint = "; did you mean " + near + "?"
				l.settings.doubts[prefix+strings.ToUpper(near)] = true
			}
			l.fail(o, "there is no such setting%s", hint)
		}
	}
}

// rowOf returns the row of a setting, or the zero row.
func rowOf(name string) row {
	for _, r := range rows {
		if r.name == name {
			return r
		}
	}
	return row{}
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
