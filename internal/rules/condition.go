package rules

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"agentgw/internal/registry"
)

// claims is the one variable that a condition has: those of a token.
const claims = "claims"

// Conditions are the expressions by which scopes of issuers are given. They are
// immutable and safe for concurrent use. nil has none.
type Conditions map[*registry.Scope]*condition

type condition struct{ program cel.Program }

// of claims, which are JSON, nothing is known before there is a token.
var claimsEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable(claims, cel.MapType(cel.StringType, cel.DynType)),
		cel.OptionalTypes(), cel.ParserExpressionSizeLimit(longest), cel.ParserRecursionLimit(64),
	)
})

var errCondition = errors.New("there is no such condition")

// Holds reports whether the condition of a scope holds of the claims of a token. An
// error says why it has no result, in words that hold nothing of the claims: then
// nobody knows whether the scope was meant, and it MUST NOT be taken for false.
func (c Conditions) Holds(s *registry.Scope, of map[string]any) (bool, error) {
	condition := c[s]
	if condition == nil {
		return false, errCondition
	}
	v, _, err := condition.program.Eval(map[string]any{claims: of})
	if err != nil {
		return false, errors.New(strings.Replace(why(err), "parameter", "claim", 1))
	}
	holds, ok := v.(types.Bool)
	if !ok {
		return false, errNotBool
	}
	return bool(holds), nil
}

// conditions compiles those of a registry.
func conditions(s *registry.Snapshot) (Conditions, registry.Problems) {
	list := Conditions{}
	var problems registry.Problems
	for i := range s.Issuers {
		for n := range s.Issuers[i].Scopes {
			scope := &s.Issuers[i].Scopes[n]
			if scope.When == "" {
				continue
			}
			program, wrong := compileCondition(scope.When)
			for _, w := range wrong {
				problems = append(problems, registry.NewProblem(scope.WhenPos, fmt.Sprintf("issuers[%d].scopes[%d].when", i, n), w))
			}
			list[scope] = &condition{program}
		}
	}
	return list, problems
}

// compileCondition returns a condition, or what is wrong with it.
func compileCondition(text string) (program cel.Program, problems []string) {
	env, err := claimsEnvironment()
	if err != nil {
		panic(err) // a mistake in the lines above
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		for _, w := range wrong(issues) {
			if strings.Contains(w, "undeclared reference") {
				w += "; a claim is claims.NAME"
			}
			problems = append(problems, w)
		}
		return nil, problems
	}
	if t := checked.OutputType(); !yields(t, []types.Kind{types.BoolKind}) {
		return nil, []string{fmt.Sprintf("yields %s, not true or false", inWords(t))}
	}
	patterns, err := patternsOf(checked)
	if err == nil { // what it costs is measured, and not estimated: it is asked once for a token, which an issuer has signed
		program, err = env.Program(checked, cel.OptimizeRegex(patterns.matchers()...), cel.CostTracking(spent{patterns}), cel.CostLimit(costLimit))
	}
	if err != nil {
		return nil, []string{err.Error()}
	}
	return program, nil
}
