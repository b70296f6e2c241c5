package registry

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentgw/internal/literal"
)

// TunnelService is what tunnels are called where a service has its name: in the scope of
// a key, in receipts, rules, delegations and metrics. Their actions are hosts, as
// HostPort writes them. Where a file has tunnels no service has this name.
const TunnelService = "tunnels"

// What becomes of the tunnels of a caller who has used up his bytes.
const (
	OnExhaustedFinish = "finish" // they run on
	OnExhaustedCut    = "cut"    // they end
)

// Tunnels says which hosts CONNECT may reach, and how much may flow there.
type Tunnels struct {
	Allow          []string // as written: host:port; a leading *. stands for any subdomain
	BytesPerWindow int64    // of one caller, both ways together; 0: no byte limit
	Window         time.Duration
	OnExhausted    string // OnExhaustedFinish or OnExhaustedCut
	AllowPrivate   bool
	Service        *Service // stands for them where a service is asked for
	Pos            Position
	AllowPos       []Position // of each of Allow
	BytesPos       Position

	hosts map[HostPort]bool // of Allow: those that are one host,
	under []HostPort        // and those of which any subdomain is allowed, with a dot in front
}

// HostPort is where a tunnel leads, in the one spelling that it has here: the name in
// lower case and without a dot at its end, an address as netip writes it. So what is
// compared is what is dialled.
type HostPort struct {
	Host string
	Port int
}

// ParseHostPort reads the target of a CONNECT (RFC 9112, section 3.2.3): a host and a
// port, neither of which may be left out. What resolvers read in several ways is an
// error, and so are names that are not in ASCII: a client sends those in their xn-- form.
func ParseHostPort(s string) (HostPort, error) {
	host, port, _ := literal.SplitHostPort(s)
	if err := literal.Host(host); err != nil {
		return HostPort{}, err
	}
	n, err := literal.Port(port)
	if err != nil {
		return HostPort{}, fmt.Errorf("%w; write HOST:PORT", err)
	}
	return HostPort{canonicalHost(host), n}, nil
}

// canonicalHost is the one spelling of a host that literal.Host lets pass.
func canonicalHost(host string) string {
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return addr.String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// String is host:port, an IPv6 address in brackets.
func (h HostPort) String() string {
	if strings.Contains(h.Host, ":") {
		return "[" + h.Host + "]:" + strconv.Itoa(h.Port)
	}
	return h.Host + ":" + strconv.Itoa(h.Port)
}

// Allows reports whether a tunnel may lead to h: its port is that of an entry, and its
// host is the entry's, or ends with it where that begins with a star. A star is for one
// label or more, and never for the name behind it, nor for part of a label; no address ends
// like a name that can stand behind one.
func (t *Tunnels) Allows(h HostPort) bool {
	return t.hosts[h] || slices.ContainsFunc(t.under, func(u HostPort) bool {
		return u.Port == h.Port && len(h.Host) > len(u.Host) && strings.HasSuffix(h.Host, u.Host)
	})
}

// Hosts are the hosts that are allowed by their own names, as HostPort writes them, in order.
func (t *Tunnels) Hosts() []string {
	list := make([]string, 0, len(t.hosts))
	for h := range t.hosts {
		list = append(list, h.String())
	}
	slices.Sort(list)
	return list
}

// tunnels reads which hosts CONNECT may reach.
func (r *reader) tunnels(e entry) *Tunnels {
	o := r.object(e.value, e.path, "allow", "bytes_per_window", "window", "on_exhausted", "allow_private")
	t := &Tunnels{
		Window:       time.Hour,
		OnExhausted:  r.choice(o, "on_exhausted", OnExhaustedFinish, OnExhaustedCut),
		AllowPrivate: r.optionalBoolean(o, "allow_private"),
		Pos:          r.pos(e.key),
		hosts:        map[HostPort]bool{},
	}
	t.Service = &Service{Name: TunnelService, Pos: t.Pos}
	if m, ok := o.get("allow"); ok {
		for _, w := range r.words(m) {
			if err := t.allow(w.text); err != nil {
				r.fail(w.value, w.path, "%v", err)
				continue
			}
			t.Allow, t.AllowPos = append(t.Allow, w.text), append(t.AllowPos, r.pos(w.value))
		}
	}
	if m, ok := o.get("bytes_per_window"); ok {
		t.BytesPerWindow, t.BytesPos = r.size(m), r.pos(m.value)
	}
	if m, ok := o.get("window"); ok {
		if t.Window = r.duration(m); t.Window == 0 {
			r.fail(m.value, m.path, "a window must be longer than 0")
		}
	}
	return t
}

// allow adds an entry of the file's list.
func (t *Tunnels) allow(text string) error {
	name, star := strings.CutPrefix(text, "*.")
	h, err := ParseHostPort(name)
	if err != nil {
		return err
	}
	if _, notName := netip.ParseAddr(h.Host); star && notName == nil {
		return errors.New("an address has no subdomains: *. stands before a name")
	}
	if star {
		t.under = append(t.under, HostPort{"." + h.Host, h.Port})
	} else {
		t.hosts[h] = true
	}
	return nil
}

// Knows reports whether the scope of a key can name it: a service of the file, or
// TunnelService where there are tunnels.
func (s *Snapshot) Knows(service string) bool {
	return s.Services[service] != nil || service == TunnelService && s.Tunnels != nil
}
