package main

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"agentgw/internal/literal"
	"agentgw/internal/registry"
)

// ruleLine is one rule as check shows it.
type ruleLine struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	When   string `json:"when,omitempty"`
	Count  string `json:"count"`
	Max    string `json:"max"` // "off" where 0 switches it off
	Window string `json:"window"`
	Mode   string `json:"mode"`
	Source string `json:"source"`
}

// ruleLines lists identity limits and rules.
func ruleLines(s *registry.Snapshot) []ruleLine {
	list := []ruleLine{}
	l := s.IdentityLimits
	for _, of := range []struct {
		name string
		most int64
		pos  registry.Position
	}{{"user", l.User, l.UserPos}, {"space", l.Space, l.SpacePos}, {"org", l.Org, l.OrgPos}} {
		if of.pos.Line > 0 {
			list = append(list, ruleLine{
				Name: of.name, Key: of.name, Count: registry.CountRequests, Max: mostText("", of.most), Window: "1s", Mode: registry.ModeEnforce,
				Source: of.pos.String(),
			})
		}
	}
	for _, r := range s.Rules {
		list = append(list, ruleLine{
			Name: r.Name, Key: literal.Mask(r.Key), When: literal.Mask(r.When), Count: literal.Mask(r.Count), Max: literal.Mask(mostText(r.Max, r.Most)),
			Window: literal.Span(r.Window), Mode: r.Mode, Source: r.Pos.String(),
		})
	}
	return list
}

func mostText(expression string, most int64) string {
	switch {
	case expression != "":
		return expression
	case most == 0:
		return "off"
	}
	return strconv.FormatInt(most, 10)
}

func printRules(w io.Writer, list []ruleLine) {
	for i, l := range list {
		if i == 0 {
			fmt.Fprintf(w, "\nRULE\tKEY\tWHEN\tCOUNT\tMAX\tWINDOW\tMODE\tFROM\n")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Name, printable(l.Key), orDash(printable(l.When)), printable(l.Count), printable(l.Max), l.Window, l.Mode, l.Source)
	}
}

// rulesInForce are the rules for a line in the log.
func rulesInForce(list []ruleLine) slog.Attr {
	attrs := make([]any, len(list))
	for i, l := range list {
		text := l.Max
		if text != "off" {
			text += " " + l.Count + " in " + l.Window + " by " + l.Key
		}
		if l.Mode == registry.ModeObserve {
			text += ", observed"
		}
		attrs[i] = slog.String(l.Name, text)
	}
	return slog.Group("rules", attrs...)
}
