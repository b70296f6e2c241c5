package ratelimit

import "os"

// scaled returns how often a drill runs: the count that speaks for itself under
// DRILLS=full, and a tenth of it otherwise.
func scaled(full int) int {
	if os.Getenv("DRILLS") == "full" {
		return full
	}
	return max(1, full/10)
}

// take is Take by a name, looked up anew each time.
func (l *Local) take(table Table, kind Kind, partition string, limit Limit, now int64) (Charge, Verdict) {
	c := l.Take(NewRef(table, kind, partition, limit), now)
	return c, c.Verdict()
}

// admission is an Admission in names, and admit is Admit by them.
type admission struct {
	Charge                 Charge
	Table                  Table
	Tenant                 string
	TenantLimit            Limit
	TenantSlots            int64
	Service, ServiceBucket string
	ServiceLimit           Limit
	ServiceSlots           int64
	Process                int64
}

func (l *Local) admit(a admission, now int64) (Ticket, Verdict) {
	return l.Admit(a.Charge, a.byRef(), now)
}

func (a admission) byRef() Admission {
	made := Admission{Service: NewService(a.Service, a.ServiceSlots), Process: a.Process}
	if a.Tenant != "" {
		made.Tenant = NewTenant(a.Table, a.Tenant, a.TenantLimit, a.TenantSlots)
	}
	if !a.ServiceLimit.Unlimited() {
		made.Bucket = NewRef(a.Table, KindService, a.ServiceBucket, a.ServiceLimit)
	}
	return made
}

func (l *Local) peek(table Table, kind Kind, partition string, limit Limit, now int64) Reading {
	bucket, _ := l.Peek(NewRef(table, kind, partition, limit), now)
	return bucket
}

func (l *Local) peekSlots(table Table, tenant string, most int64) Reading {
	_, slots := l.Peek(NewTenant(table, tenant, Limit{}, most), 0)
	return slots
}

// wantInFlight holds that so many calls run, by the count of each pool and by those of
// tenants alike.
func (l *Local) wantInFlight(t interface {
	Helper()
	Errorf(string, ...any)
}, want int64) {
	t.Helper()
	st := l.Stats()
	services, ofTenants := int64(0), int64(0)
	for _, s := range st.Services {
		services, ofTenants = services+s.InFlight, ofTenants+s.OfTenants
	}
	if got := [4]int64{st.Process.InFlight, st.Process.OfTenants, services, ofTenants}; got != [4]int64{want, want, want, want} {
		t.Errorf("in flight by process, its tenants, services, and theirs: %d, want %d", got, want)
	}
}
