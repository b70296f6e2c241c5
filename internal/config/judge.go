package config

import (
	"errors"

	"agentgw/internal/literal"
)

// judge checks what no setting can be wrong about alone.
func (l *loading) judge() {
	s := l.settings
	if len(l.problems) > 0 {
		return // what was not read cannot be compared
	}
	if (s.TLSCertFile == "") != (s.TLSKeyFile == "") {
		name := "TLS_CERT_FILE"
		if s.TLSCertFile == "" {
			name = "TLS_KEY_FILE"
		}
		l.blame(name, errors.New("TLS needs both a certificate and its key"))
	}
	l.rate("RATE_KEY_RPS", "RATE_KEY_BURST", &s.RateKeyRPS, &s.RateKeyBurst)
	l.rate("RATE_TENANT_RPS", "RATE_TENANT_BURST", &s.RateTenantRPS, &s.RateTenantBurst)
	l.callerRate()
	if !s.RedisURL.Empty() {
		l.blame("REDIS_URL", errNotBuilt)
	}
	if !s.DatabaseURL.Empty() {
		l.blame("DATABASE_URL", errNotBuilt)
	}
}

// errNotBuilt refuses what would otherwise look as if it were shared while each
// process counted and stored for itself.
var errNotBuilt = errors.New("this version cannot share with other processes: leave it unset")

// Unserved lists the settings that were given and read but are not acted upon
// by this version, each with where it came from and what happens instead.
func (s *Settings) Unserved() []string {
	var list []string
	add := func(given bool, name, instead string) {
		if given {
			list = append(list, s.Place(prefix+name)+": "+instead)
		}
	}
	add(s.TenantQueue > 0, "TENANT_QUEUE", "this version refuses at once; nobody waits")
	add(s.RateCallerRPM > 0, "RATE_CALLER_RPM", "this version serves no open callers")
	add(s.ReceiptRetention > 0, "RECEIPT_RETENTION", "this version keeps every receipt")
	return list
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

// rate checks a rate with its burst. 0 for either disables the limit; a burst
// that somebody gave for a rate of 0 is a contradiction.
func (l *loading) rate(rpsName, burstName string, rps *float64, burst *int) {
	if *rps == 0 && l.settings.origins[prefix+burstName].where == "" {
		*burst = 0 // a default is nobody's wish
	}
	if *burst == 0 {
		*rps = 0
	}
	if err := literal.CheckRate(*rps, *burst); err != nil {
		name := burstName
		if *rps > literal.MaxRPS {
			name = rpsName
		}
		l.blame(name, err)
	}
}

func (l *loading) callerRate() {
	s := l.settings
	switch {
	case s.RateCallerRPM == 0 && s.RateCallerBurst != 0:
		l.blame("RATE_CALLER_BURST", errors.New("a burst without its rate limits nothing: RATE_CALLER_RPM is unset"))
		return
	case s.RateCallerRPM == 0:
		return
	case s.RateCallerBurst == 0:
		s.RateCallerBurst = literal.DefaultBurst(s.RateCallerRPM)
	}
	if err := literal.CheckRate(s.RateCallerRPM/60, s.RateCallerBurst); err != nil {
		l.blame("RATE_CALLER_BURST", err)
	}
}
