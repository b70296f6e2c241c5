package rules

import (
	"errors"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
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
func affordable(env *cel.Env, checked *cel.Ast) error {
	estimate, err := env.EstimateCost(checked, sizes{})
	if err != nil {
		return err
	}
	if estimate.Max > costLimit {
		return errCost
	}
	return nil
}

// sizes implements cost.Estimator.
type sizes struct{}

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

// EstimateCallCost implements cost.Estimator.
func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil // what CEL's own functions cost, CEL knows
}
