package rules

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/checker"
	"cel.dev/cel-go/common/types"

	"agentgw/internal/registry"
)

// longest is the most characters of an expression.
const longest = 4096

// expression is one that was compiled.
type expression struct {
	program cel.Program
	part    string // of the rule: key, when, max or count
}

// environment is made with the first rule that there is: a gateway without any
// does not pay for it.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	nullable := cel.NullableType(cel.StringType)
	return cel.NewEnv(
		cel.Variable("caller", cel.StringType),
		cel.Variable("tenant", cel.StringType),
		cel.Variable("service", cel.StringType),
		cel.Variable("action", cel.StringType),
		cel.Variable("client_ip", cel.StringType),
		cel.Variable("org", nullable),
		cel.Variable("space", nullable),
		cel.Variable("user", nullable),
		cel.Variable("principal", nullable),
		cel.Variable("principal_or_ip", cel.StringType),
		// Variables with a dot in their names, and not members of a map, so that
		// one that is misspelt is found when the registry is loaded.
		cel.Variable("request.id", cel.StringType),
		cel.Variable("request.method", cel.StringType),
		cel.Variable("request.path", cel.StringType),
		cel.Variable("request.bytes", cel.IntType),
		cel.Variable(params, cel.MapType(cel.StringType, cel.DynType)),
		cel.OptionalTypes(),
		cel.ParserExpressionSizeLimit(longest),
		cel.ParserRecursionLimit(64),
	)
})

// compiler compiles the expressions of one rule, and notes what is wrong.
type compiler struct {
	path     string
	problems registry.Problems
	sees     []string
	names    []Name
}

func (c *compiler) rule(r registry.Rule) *Rule {
	rule := &Rule{
		Name: r.Name, Window: r.Window, Of: r.Count, Observe: r.Mode == registry.ModeObserve, Cost: r.Cost,
		OnStoreFailure: r.OnStoreFailure, Pos: r.Pos, most: r.Most,
	}
	rule.key = c.compile("key", r.Key, r.KeyPos, "a text or null", types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind)
	rule.when = c.compile("when", r.When, r.WhenPos, "true or false", types.BoolKind)
	rule.max = c.compile("max", r.Max, r.MaxPos, "a number", types.IntKind, types.UintKind, types.DoubleKind)
	rule.sees = slices.Compact(slices.Sorted(slices.Values(c.sees))) // not what it counts for
	if r.Count != registry.CountRequests && r.Count != registry.CountBytes {
		rule.count = c.compile("count", r.Count, r.CountPos, "a number (or the words requests or bytes)", types.IntKind, types.UintKind, types.DoubleKind)
	}
	rule.names = c.names
	return rule
}

// compile returns nil where there is no expression, or none that holds.
func (c *compiler) compile(part, text string, at registry.Position, wanted string, kinds ...types.Kind) *expression {
	if text == "" {
		return nil
	}
	fail := func(format string, args ...any) {
		c.problems = append(c.problems, registry.NewProblem(at, c.path+"."+part, fmt.Sprintf(format, args...)))
	}
	env, err := environment()
	if err != nil {
		panic(err) // a mistake in the lines above
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		for _, issue := range wrong(issues) {
			fail("%s", issue)
		}
		return nil
	}
	if t := checked.OutputType(); !yields(t, kinds) {
		fail("yields %s, not %s", inWords(t), wanted)
		return nil
	}
	patterns, err := patternsOf(checked)
	if err == nil {
		err = affordable(env, checked, patterns)
	}
	if err != nil {
		fail("%v", err)
		return nil
	}
	seen := variables(env, checked)
	c.sees = append(c.sees, seen...)
	c.names = append(c.names, names(checked, part, at)...)
	options := []cel.ProgramOption{cel.OptimizeRegex(patterns.matchers()...)}
	if slices.Contains(seen, params) {
		options = append(options, cel.CostTracking(spent{patterns}), cel.CostLimit(costLimit))
	} else { // of a list that was made a set CEL does not count what looking into it costs
		options = append(options, cel.EvalOptions(cel.OptOptimize))
	}
	program, err := env.Program(checked, options...)
	if err != nil {
		fail("%v", err)
		return nil
	}
	e := &expression{program: program, part: part}
	if len(seen) == 0 {
		if err := e.try(&Call{}); err != nil {
			fail("is the same for every call, and of no use: %s", why(err))
			return nil
		}
	}
	return e
}

// try asks for the result in the way of the part that e is.
func (e *expression) try(c *Call) (err error) {
	switch e.part {
	case "key":
		_, err = e.text(c)
	case "when":
		_, err = e.truth(c)
	case "max":
		_, err = e.number(c, math.Floor)
	default:
		_, err = e.amount(c)
	}
	return err
}

// wrong puts what the compiler found into words. Of a text that it cannot parse
// only the first is worth anything.
func wrong(issues *cel.Issues) (list []string) {
	for _, e := range issues.Errors() {
		what, syntax := strings.CutPrefix(e.Message, "Syntax error: ")
		what, _, _ = strings.Cut(what, " expecting ")
		where := fmt.Sprintf("character %d", e.Location.Column()+1)
		if e.Location.Line() > 1 {
			where = fmt.Sprintf("line %d, %s", e.Location.Line(), where)
		}
		if syntax {
			if strings.Contains(what, "'<EOF>'") {
				what = "there it ends, too early"
			}
			return []string{fmt.Sprintf("is no expression, from %s on: %s", where, what)}
		}
		what = inTypes(what)
		if strings.Contains(what, "'request'") { // which is a part of names, and no value
			what += "; there are request.id, request.method, request.path, request.bytes and request.params"
		}
		if e.Location.Line() < 1 { // of the text as a whole
			list = append(list, what)
			continue
		}
		list = append(list, fmt.Sprintf("%s (at %s)", what, where))
	}
	return list
}

// yields reports whether an expression of type t can have a result of one of the
// kinds. What is only known when it runs is looked at then.
func yields(t *cel.Type, kinds []types.Kind) bool {
	if t.Kind() == types.OpaqueKind && t.TypeName() == "optional_type" {
		t = t.Parameters()[0]
	}
	return t.Kind() == types.DynKind || slices.Contains(kinds, t.Kind())
}

// inWords is a type as who writes a registry knows it.
func inWords(t *cel.Type) string {
	switch t.Kind() {
	case types.StringKind:
		if t.IsAssignableType(cel.NullType) {
			return "a text or null"
		}
		return "a text"
	case types.BoolKind:
		return "true or false"
	case types.NullTypeKind:
		return "nothing but null"
	case types.IntKind, types.UintKind, types.DoubleKind:
		return "a number"
	}
	return typeWords(checker.FormatCELType(t))
}

// variables are those of a call that an expression refers to: not functions, nor
// what a macro of its own goes over a list with.
func variables(env *cel.Env, checked *cel.Ast) (list []string) {
	declared := map[string]bool{}
	for _, v := range env.Variables() {
		declared[v.Name()] = true
	}
	for _, ref := range checked.NativeRep().ReferenceMap() {
		if declared[ref.Name] {
			list = append(list, ref.Name)
		}
	}
	return list
}
