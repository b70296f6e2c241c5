package main

import (
	"fmt"
	"io"

	"agentgw/internal/literal"
	"agentgw/internal/registry"
)

// tunnelsLine is where CONNECT may lead, and how much may flow there.
type tunnelsLine struct {
	Allow          []string `json:"allow"`
	AllowPrivate   bool     `json:"allow_private"`
	BytesPerWindow *int64   `json:"bytes_per_window"` // of each caller; null: no limit
	Window         string   `json:"window"`
	OnExhausted    string   `json:"on_exhausted"`
	Source         string   `json:"source"`
}

// newTunnelsLine returns nil for a registry without tunnels.
func newTunnelsLine(t *registry.Tunnels) *tunnelsLine {
	if t == nil {
		return nil
	}
	l := &tunnelsLine{
		Allow: append([]string{}, t.Allow...), AllowPrivate: t.AllowPrivate, Window: literal.Span(t.Window), OnExhausted: t.OnExhausted, Source: t.Pos.String(),
	}
	if t.BytesPerWindow > 0 {
		l.BytesPerWindow = &t.BytesPerWindow
	}
	return l
}

func (l *tunnelsLine) print(w io.Writer) {
	if l == nil {
		return
	}
	carry := "off"
	if l.BytesPerWindow != nil {
		carry = fmt.Sprintf("%d bytes in %s (%s)", *l.BytesPerWindow, l.Window, l.OnExhausted)
	}
	fmt.Fprintf(w, "\nTUNNELS TO\tLIMIT OF EACH CALLER\tFROM\n")
	for _, to := range l.Allow {
		fmt.Fprintf(w, "%s\t%s\t%s\n", to, carry, l.Source)
	}
	if len(l.Allow) == 0 {
		fmt.Fprintf(w, "nowhere\t%s\t%s\n", carry, l.Source)
	}
}
