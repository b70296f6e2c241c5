package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"agentgw/internal/literal"
	"agentgw/internal/pgaddr"
	"agentgw/internal/redisaddr"
)

// judge checks what no setting can be wrong about alone.
func (l *loading) judge() {
	s := l.settings
	if l.sure("TLS_CERT_FILE", "TLS_KEY_FILE") && (s.TLSCertFile == "") != (s.TLSKeyFile == "") {
		name := "TLS_CERT_FILE"
		if s.TLSCertFile == "" {
			name = "TLS_KEY_FILE"
		}
		l.blame(name, errors.New("TLS needs both a certificate and its key"))
	}
	l.rate("RATE_KEY_RPS", "RATE_KEY_BURST", &s.RateKeyRPS, &s.RateKeyBurst)
	l.rate("RATE_TENANT_RPS", "RATE_TENANT_BURST", &s.RateTenantRPS, &s.RateTenantBurst)
	l.callerRate()
	l.addresses()
	l.anchor()
	if !s.RedisURL.Empty() {
		if err := checkRedis(s.RedisURL.Reveal()); err != nil {
			l.blame("REDIS_URL", err) // which does not quote it: it may hold a password
		}
	}
	if !s.DatabaseURL.Empty() {
		if _, err := pgaddr.Parse(s.DatabaseURL.Reveal()); err != nil {
			l.blame("DATABASE_URL", err) // which does not quote it: it may hold a password
		}
	}
}

// checkRedis says what is wrong with where a Redis is, and with the files that it names.
func checkRedis(text string) error {
	address, err := redisaddr.Parse(text)
	if err == nil {
		_, err = address.Config()
	}
	return err
}

// blame reports a problem at the place that a setting's value came from.
func (l *loading) blame(name string, err error) {
	r := rowOf(name)
	o := l.settings.origins[r.variable()]
	if o.where == "" {
		o = origin{"default", r.variable()}
	}
	l.fail(o, "%v", err)
}

// sure reports whether what these were set to was read: what was not cannot be
// compared.
func (l *loading) sure(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !l.settings.Sure(prefix + name) })
}

// rate checks a rate with its burst. 0 for either disables the limit, and neither
// is changed for the other's sake: a message must find the 0 that was given. A burst
// that somebody gave for a rate of 0 is a contradiction. A rate of the registry
// that is given alone has the burst that every rate there has.
func (l *loading) rate(rpsName, burstName string, rps *float64, burst *int) {
	if !l.sure(rpsName, burstName) {
		return
	}
	s := l.settings
	from, given := s.origins[prefix+rpsName], s.origins[prefix+burstName].where != ""
	switch {
	case given:
	case *rps == 0:
		*burst = 0 // a default is nobody's wish
	case strings.HasPrefix(from.name, "server.") && *rps <= literal.MaxRPS:
		*burst = literal.DefaultBurst(*rps)
		s.origins[prefix+burstName], s.texts[prefix+burstName], s.derived[prefix+burstName] = from, strconv.Itoa(*burst), true
	}
	err := literal.CheckRate(*rps, *burst)
	switch {
	case err == nil:
		return
	case *rps == 0: // which somebody gave too, perhaps elsewhere
		l.blame(burstName, fmt.Errorf("a burst without its rate limits nothing, and %s is 0: give a rate, or 0 for both", from))
	case *rps > literal.MaxRPS:
		l.blame(rpsName, err)
	case !given && *rps*3600 >= 1:
		l.blame(rpsName, fmt.Errorf("%w; nobody gave the burst: give %s too", err, prefix+burstName))
	case !given:
		l.blame(rpsName, err) // no burst helps
	default:
		l.blame(burstName, err)
	}
	s.doubts[prefix+rpsName], s.doubts[prefix+burstName] = true, true
}

// anchor refuses an anchor that goes wherever the log goes: it would be restored and
// copied with it, and so tell nothing.
func (l *loading) anchor() {
	s := l.settings
	if s.ReceiptAnchor == "" || !l.sure("RECEIPT_ANCHOR", "DATA_DIR") {
		return
	}
	data, errData := filepath.Abs(s.DataDir)
	file, errFile := filepath.Abs(s.ReceiptAnchor)
	if errData != nil || errFile != nil {
		return
	}
	if inside, err := filepath.Rel(data, file); err == nil && inside != ".." && !strings.HasPrefix(inside, "../") {
		l.blame("RECEIPT_ANCHOR", fmt.Errorf("%s is in the data folder, with which it would be restored and copied: put it on another volume", literal.Quote(s.ReceiptAnchor)))
	}
}

// addresses refuses the same address for agents and operators, which a start
// could not take twice.
func (l *loading) addresses() {
	if !l.sure("LISTEN", "ADMIN_LISTEN") {
		return
	}
	agents, agentsPort, _ := literal.SplitHostPort(l.settings.Listen)
	operators, operatorsPort, _ := literal.SplitHostPort(l.settings.AdminListen)
	if agentsPort != operatorsPort || agentsPort == "0" || !overlap(agents, operators) {
		return
	}
	name, other := "ADMIN_LISTEN", "LISTEN"
	if l.settings.origins[prefix+name].where == "" {
		name, other = other, name
	}
	l.blame(name, fmt.Errorf("is taken by %s already: agents and operators need an address each", prefix+other))
}

// overlap reports whether two hosts are sure to be the same address of this
// machine, or one of them is every address.
func overlap(a, b string) bool {
	if a == b || a == "" || b == "" {
		return true
	}
	x, errX := netip.ParseAddr(strings.Trim(a, "[]"))
	y, errY := netip.ParseAddr(strings.Trim(b, "[]"))
	if errX != nil || errY != nil {
		return errX == nil && x.IsUnspecified() || errY == nil && y.IsUnspecified()
	}
	// :: takes IPv4 too.
	return x == y || x == netip.IPv6Unspecified() || y == netip.IPv6Unspecified() ||
		x.Is4() == y.Is4() && (x.IsUnspecified() || y.IsUnspecified())
}

func (l *loading) callerRate() {
	s, name := l.settings, "RATE_CALLER_BURST"
	switch {
	case !l.sure("RATE_CALLER_RPM", "RATE_CALLER_BURST"):
		return
	case s.RateCallerRPM == 0 && s.RateCallerBurst != 0:
		rate := strings.NewReplacer("BURST", "RPM", "burst", "rpm").Replace(s.origins[prefix+name].name) // as whoever set the burst spells it
		l.blame(name, fmt.Errorf("a burst without its rate limits nothing: give %s too", rate))
		return
	case s.RateCallerRPM == 0:
		return
	case s.RateCallerBurst == 0:
		s.RateCallerBurst, name = literal.DefaultBurst(s.RateCallerRPM), "RATE_CALLER_RPM"
	}
	switch rpm, burst := s.RateCallerRPM, s.RateCallerBurst; {
	case rpm > 60*literal.MaxRPS:
		l.blame("RATE_CALLER_RPM", fmt.Errorf("a rate over %d a minute cannot be kept", int64(60*literal.MaxRPS)))
	case float64(burst) > 60*rpm:
		l.blame(name, fmt.Errorf("a burst of %d is more than an hour of its rate of %s a minute", burst, literal.Number(rpm)))
	}
}

// Exposed reports whether other machines may reach the operators' address: it is
// not sure to be a loopback one.
func (s *Settings) Exposed() bool {
	host, _, _ := literal.SplitHostPort(s.AdminListen)
	host = strings.ToLower(strings.Trim(host, "[]"))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // RFC 6761
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err != nil || !addr.IsLoopback()
}

// Risks lists what the settings allow and their operator should know, each with
// where it came from.
func (s *Settings) Risks() []string {
	if !s.Exposed() {
		return nil
	}
	return []string{s.Place(prefix+"ADMIN_LISTEN") + ": " + s.AdminListen + " can be reached from other machines, and speaks plain HTTP: " +
		"who listens in on the way has the operators' token, and who reaches it sees /metrics without one. Listen on 127.0.0.1, or put TLS in front"}
}
