package rules

import (
	"errors"
	"regexp"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// matches is the one function whose cost is not near to the length of a text: Go's
// regexp takes a step for each byte and instruction of the pattern's program. CEL
// takes the pattern's own length for that, by which (.*a.*){30} is a short one, and
// counts only when the work is done.
const matches = "matches"

// pace is how many of regexp's steps are one of CEL's.
const pace = 16

var errPattern = errors.New("the pattern of matches must be written out, as a text in quotes: what another one costs cannot be told")

// patterns are those that an expression matches texts with, and the lengths of their
// programs. One that is no pattern is left to whoever compiles the expression.
type patterns map[string]uint64

// patternsOf fails if there is one that is not written out.
func patternsOf(checked *cel.Ast) (patterns, error) {
	found := patterns{}
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked.NativeRep()), ast.FunctionMatcher(matches)) {
		args := e.AsCall().Args()
		last := args[len(args)-1]
		if last.Kind() != ast.LiteralKind {
			return nil, errPattern
		}
		pattern, ok := last.AsLiteral().(types.String)
		if !ok {
			return nil, errPattern
		}
		if size, err := types.RegexProgramSize(string(pattern)); err == nil {
			found[string(pattern)] = uint64(size)
		}
	}
	return found, nil
}

// cost is that of matching a text of that length, in CEL's steps.
func (p patterns) cost(pattern string, length uint64) uint64 {
	return 1 + length*p[pattern]/pace
}

// matchers compile the patterns with the expression, and tell what a match costs
// before it is begun. They are named by overload: of those named by function alone,
// CEL's own comes first.
func (p patterns) matchers() (list []*interpreter.RegexOptimization) {
	for _, overload := range []string{overloads.Matches, overloads.MatchesString} {
		list = append(list, &interpreter.RegexOptimization{Function: matches, OverloadID: overload, RegexIndex: 1, Factory: p.matcher})
	}
	return list
}

func (p patterns) matcher(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		text, ok := args[0].(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[0])
		}
		if p.cost(pattern, uint64(len(text))) > costLimit {
			return types.WrapErr(errMany)
		}
		return types.Bool(compiled.MatchString(string(text)))
	}), nil
}
