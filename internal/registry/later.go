package registry

import (
	"strings"
	"time"

	"agentgw/internal/literal"
)

// tunnels reads which hosts CONNECT may reach.
func (r *reader) tunnels(e entry) *Tunnels {
	o := r.object(e.value, e.path, "allow", "bytes_per_window", "window", "on_exhausted", "allow_private")
	t := &Tunnels{
		Window:       time.Hour,
		OnExhausted:  r.choice(o, "on_exhausted", "finish", "cut"),
		AllowPrivate: r.optionalBoolean(o, "allow_private"),
		Pos:          r.pos(e.key),
	}
	if m, ok := o.get("allow"); ok {
		for _, w := range r.words(m) {
			host, port, _ := literal.SplitHostPort(w.text)
			if err := literal.Host(strings.TrimPrefix(host, "*.")); err != nil {
				r.fail(w.value, w.path, "%v", err)
			} else if _, err := literal.Port(port); err != nil {
				r.fail(w.value, w.path, "%v; write HOST:PORT", err)
			}
			t.Allow = append(t.Allow, w.text)
		}
	}
	if m, ok := o.get("bytes_per_window"); ok {
		t.BytesPerWindow = r.size(m)
	}
	if m, ok := o.get("window"); ok {
		if t.Window = r.duration(m); t.Window == 0 {
			r.fail(m.value, m.path, "a window must be longer than 0")
		}
	}
	return t
}

// Unserved lists the sections of the file that are checked but not acted upon
// by this version, so that nobody takes a limit for granted that is none.
func (s *Snapshot) Unserved() Problems {
	var list Problems
	add := func(p Position, path, what string) {
		list = append(list, NewProblem(p, path, what))
	}
	if s.Tunnels != nil && len(s.Tunnels.Allow) > 0 {
		add(s.Tunnels.Pos, "tunnels", "this version opens no tunnels")
	}
	list.Sort()
	return list
}
