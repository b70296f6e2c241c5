package rules

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"agentgw/internal/registry"
)

// Name is a text that an expression compares a variable with, as in
// service == "search" or action in ["web"].
type Name struct {
	Variable, Text string
	Part           string // of the rule: key, when, max or count
	Pos            registry.Position
}

// Names lists the texts that the rule's expressions compare service and action with.
// One that no service or action has is a limit that never acts, or always.
func (r *Rule) Names() []Name { return r.names }

// names finds those of an expression.
func names(checked *cel.Ast, part string, at registry.Position) (list []Name) {
	note := func(name, text ast.Expr) {
		if name.Kind() != ast.IdentKind || name.AsIdent() != "service" && name.AsIdent() != "action" || text.Kind() != ast.LiteralKind {
			return
		}
		if s, ok := text.AsLiteral().(types.String); ok {
			list = append(list, Name{name.AsIdent(), string(s), part, at})
		}
	}
	ast.PostOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
			return
		}
		left, right := e.AsCall().Args()[0], e.AsCall().Args()[1]
		switch e.AsCall().FunctionName() {
		case operators.Equals, operators.NotEquals:
			note(left, right)
			note(right, left)
		case operators.In:
			if right.Kind() == ast.ListKind {
				for _, element := range right.AsList().Elements() {
					note(left, element)
				}
			}
		}
	}))
	return list
}
