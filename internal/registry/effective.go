package registry

// Defaults are the limits that hold where the registry says nothing.
type Defaults struct {
	KeyRPS            float64
	KeyBurst          int
	TenantRPS         float64
	TenantBurst       int
	TenantMaxInflight int
	// Source says where a setting's value comes from, by the setting's full
	// name, such as AGENTGATE_RATE_KEY_RPS.
	Source func(setting string) string
}

// Limits is what holds for one key, tenant or service.
type Limits struct {
	RPS         float64 // 0: no rate limit
	Burst       int     // 0 where RPS is
	MaxInflight int     // 0: no cap
	Source      string  // where the rate comes from: a place in the file, or a setting's source
}
