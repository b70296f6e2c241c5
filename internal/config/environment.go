package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"agentgw/internal/literal"

	"github.com/kelseyhightower/envconfig"
)

// environment is what envconfig fills: the texts of the variables. It decodes
// nothing, because its errors quote the value that they could not decode, and
// because a value that a flag overrides need not be a sound one.
//
// split_words makes RateKeyRPS into RATE_KEY_RPS. The envconfig tag, which
// could name a variable outright, is not used: envconfig then looks for that
// name without the prefix too.
type environment struct {
	Listen               given `split_words:"true"`
	AdminListen          given `split_words:"true"`
	TLSCertFile          given `split_words:"true"`
	TLSKeyFile           given `split_words:"true"`
	PublicURL            given `split_words:"true"`
	Registry             given `split_words:"true"`
	DataDir              given `split_words:"true"`
	RateKeyRPS           given `split_words:"true"`
	RateKeyBurst         given `split_words:"true"`
	RateTenantRPS        given `split_words:"true"`
	RateTenantBurst      given `split_words:"true"`
	TenantMaxInflight    given `split_words:"true"`
	TenantQueue          given `split_words:"true"`
	TenantQueueWait      given `split_words:"true"`
	MaxInflight          given `split_words:"true"`
	RateTableSize        given `split_words:"true"`
	RateIdle             given `split_words:"true"`
	KeyMaxPrincipals     given `split_words:"true"`
	RateCallerRPM        given `split_words:"true"`
	RateCallerBurst      given `split_words:"true"`
	RateAuthPerMinute    given `split_words:"true"`
	TrustedProxies       given `split_words:"true"`
	RedisURL             given `split_words:"true"`
	RedisTimeout         given `split_words:"true"`
	LimitsOnStoreFailure given `split_words:"true"`
	DatabaseURL          given `split_words:"true"`
	VaultKey             given `split_words:"true"`
	VaultKeyFile         given `split_words:"true"`
	VaultKeyPrevious     given `split_words:"true"`
	VaultKeyPreviousFile given `split_words:"true"`
	AdminToken           given `split_words:"true"`
	AdminTokenFile       given `split_words:"true"`
	ReceiptSync          given `split_words:"true"`
	ReceiptIntent        given `split_words:"true"`
	ReceiptOnFailure     given `split_words:"true"`
	ReceiptRetention     given `split_words:"true"`
	ReceiptAnchor        given `split_words:"true"`
	MaxRequestBody       given `split_words:"true"`
	StreamIdle           given `split_words:"true"`
	StreamMax            given `split_words:"true"`
	ClientStall          given `split_words:"true"`
	DrainTimeout         given `split_words:"true"`
	LogLevel             given `split_words:"true"`
	LogFormat            given `split_words:"true"`
}

// given is a text that somebody may have given.
type given struct {
	text string
	set  bool
}

// Decode takes any text. envconfig calls it for a variable that is set.
func (g *given) Decode(v string) error {
	*g = given{v, true}
	return nil
}

// field returns the variable of a row.
func (e *environment) field(r row) given {
	return reflect.ValueOf(e).Elem().FieldByName(r.field).Interface().(given)
}

// processEnvironment guards the environment of the process while it stands in
// for the one that was passed.
var processEnvironment sync.Mutex

// readEnvironment reads the variables of environ. A variable that is empty
// counts as unset.
//
// envconfig reads the environment of the process and no other, so for its
// time that one is made to hold exactly what environ does. In the program
// itself the two are the same but for the empty ones.
func readEnvironment(environ []string) (*environment, error) {
	processEnvironment.Lock()
	defer processEnvironment.Unlock()
	before := variables(os.Environ())
	want := variables(environ)
	defer func() {
		for name := range want {
			_ = os.Unsetenv(name)
		}
		for name, v := range before {
			_ = os.Setenv(name, v)
		}
	}()
	for name := range before {
		_ = os.Unsetenv(name)
	}
	for name, v := range want {
		if v == "" {
			continue
		}
		if err := os.Setenv(name, v); err != nil {
			return nil, fmt.Errorf("environment: %s: cannot be read", name)
		}
	}
	var e environment
	if err := envconfig.Process(strings.TrimSuffix(prefix, "_"), &e); err != nil {
		// Its text may hold a value, and so a secret.
		return nil, fmt.Errorf("environment: the %s* variables cannot be read", prefix)
	}
	return &e, nil
}

// variables returns the variables of environ that are ours by name.
func variables(environ []string) map[string]string {
	ours := map[string]string{}
	for _, line := range environ {
		if name, v, ok := strings.Cut(line, "="); ok && strings.HasPrefix(name, prefix) {
			ours[name] = v
		}
	}
	return ours
}

// kubernetes is what a cluster puts into every container for a service whose
// name begins with agentgate.
var kubernetes = regexp.MustCompile(`^AGENTGATE_(.*_)?(PORT|PORT_[0-9]+_TCP.*|SERVICE_HOST|SERVICE_PORT.*)$`)

// unknownVariables reports the names that no setting has, empty ones too: a
// misspelt name is no less misspelt for having no value yet.
func (l *loading) unknownVariables(environ []string) {
	var names []string
	known := map[string]bool{}
	for _, r := range rows {
		names = append(names, r.variable())
		known[r.variable()] = true
	}
	for _, name := range sortedNames(variables(environ)) {
		if known[name] || kubernetes.MatchString(name) {
			continue
		}
		what := "there is no such setting"
		if near := literal.Nearest(name, names); near != "" {
			what += "; did you mean " + near + "?"
			l.settings.doubts[near] = true
		}
		l.fail(origin{"environment", name}, "%s", what)
	}
}
