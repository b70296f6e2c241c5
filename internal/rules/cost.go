package rules

import (
	"errors"
	"math"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// costLimit is what an expression may cost, in the steps that CEL counts: some
// milliseconds at the very most.
const costLimit = 100_000

// What an expression is thought to meet when its cost is estimated. Names are
// bounded; parameters are not, and of those it is what a call of some size has.
const (
	longName  = 256
	longText  = 1024
	manyItems = 128
)

var errCost = errors.New("may take too much work for every call: loops over what a call holds must not be nested, nor search long texts")

// affordable estimates what an expression costs at most.
func affordable(env *cel.Env, checked *cel.Ast, of patterns) error {
	estimate, err := env.EstimateCost(checked, sizes{of})
	if err != nil {
		return err
	}
	if estimate.Max > costLimit {
		return errCost
	}
	return nil
}

// sizes implements cost.Estimator.
type sizes struct{ patterns patterns }

// EstimateSize implements cost.Estimator.
func (sizes) EstimateSize(of cost.AstNode) *cost.SizeEstimate {
	path := of.Path()
	if len(path) == 0 {
		return nil
	}
	most := uint64(longName)
	switch {
	case path[0] != params:
	case of.Type().Kind() == types.ListKind, of.Type().Kind() == types.MapKind, of.Type().Kind() == types.DynKind:
		most = manyItems
	default:
		most = longText
	}
	s := cost.RangedSizeEstimate(0, most)
	return &s
}

// EstimateCallCost implements cost.Estimator. What CEL's other functions cost, CEL
// knows; and where a parameter is matched, what counts is its cost when it is.
func (s sizes) EstimateCallCost(function, _ string, target *cost.AstNode, args []cost.AstNode) *cost.CallEstimate {
	if function != matches {
		return nil
	}
	if target != nil {
		args = append([]cost.AstNode{*target}, args...)
	}
	if path := args[0].Path(); len(path) > 0 && path[0] == params {
		return nil
	}
	pattern, _ := args[1].Expr().AsLiteral().(types.String)
	length := cost.EstimateSize(s, args[0]).Max
	if length > costLimit { // of a text that nobody knows anything about
		return cost.NewCallEstimate(cost.FixedCostEstimate(length), nil)
	}
	return cost.NewCallEstimate(cost.FixedCostEstimate(s.patterns.cost(string(pattern), length)), nil)
}

// spent implements cost.ActualCostEstimator: what functions of texts cost. CEL takes
// some of them for one step however long the text, and of others counts the
// characters to tell, which takes longer than they do.
type spent struct{ patterns patterns }

// quick is how many bytes are gone through in the time of a step.
const quick = 1024

// CallCost implements cost.ActualCostEstimator. What is not of texts CEL knows.
func (s spent) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	texts, shortest, all := 0, uint64(math.MaxUint64), uint64(0)
	for _, a := range args {
		if text, ok := a.(types.String); ok {
			length := uint64(len(text))
			texts, shortest, all = texts+1, min(shortest, length), all+length
		}
	}
	if texts == 0 {
		return nil
	}
	steps := 1 + all/quick
	switch function {
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		steps = 1
		if texts == len(args) {
			steps += shortest / quick
		}
	case operators.In:
		if list, ok := args[1].(traits.Lister); ok {
			n, _ := list.Size().(types.Int)
			steps += uint64(n)
		}
	case matches:
		pattern, _ := args[1].(types.String)
		text, _ := args[0].(types.String)
		steps = s.patterns.cost(string(pattern), uint64(len(text)))
	}
	return &steps
}
