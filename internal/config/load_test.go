package config_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"agentgw/internal/config"
)

// load reads the settings from flags, environment and server: section.
func load(t *testing.T, flags, environ []string, server ...config.Setting) (*config.Settings, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	config.Flags(fs)
	if err := fs.Parse(flags); err != nil {
		t.Fatal(err)
	}
	return config.Load(fs, environ, server)
}

func in(name, value string) config.Setting {
	return config.Setting{Name: name, Value: value, Where: "r.yaml:4:3"}
}

func TestDefaults(t *testing.T) {
	s, err := load(t, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%+v", *s)
	for _, want := range []string{
		"Listen:127.0.0.1:8080 ", "AdminListen:127.0.0.1:9090 ", "TLSCertFile: ", "Registry:registry.yaml ", "DataDir:./data ",
		"RateKeyRPS:20 RateKeyBurst:40 RateTenantRPS:100 RateTenantBurst:200 TenantMaxInflight:32 TenantQueue:0 TenantQueueWait:1s MaxInflight:0 ",
		"RateTableSize:100000 RateIdle:10m0s KeyMaxPrincipals:64 RateCallerRPM:0 RateCallerBurst:0 RateAuthPerMinute:60 TrustedProxies:[] ",
		"RedisTimeout:10ms LimitsOnStoreFailure:local ", "ReceiptSync:always ReceiptIntent:always ReceiptOnFailure:refuse ReceiptRetention:0s ReceiptAnchor: ",
		"MaxRequestBody:10485760 StreamIdle:5m0s StreamMax:0s ClientStall:30s DrainTimeout:30s LogLevel:INFO LogFormat: ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if !s.VaultKey.Empty() || !s.AdminToken.Empty() || !s.RedisURL.Empty() || !s.DatabaseURL.Empty() {
		t.Error("a secret out of nowhere")
	}
	for _, v := range s.Values() {
		if v.Source != "default" {
			t.Errorf("%+v", v)
		}
	}
}

// samples are a sound value for each setting, other than its default.
var samples = map[string]string{
	"LISTEN": "[::1]:80", "ADMIN_LISTEN": ":9091", "TLS_CERT_FILE": "c.pem", "TLS_KEY_FILE": "k.pem", "PUBLIC_URL": "https://gw.example:8443/a", "REGISTRY": "other.yaml", "DATA_DIR": "/d",
	"RATE_KEY_RPS": "0.5", "RATE_KEY_BURST": "7", "RATE_TENANT_RPS": "9", "RATE_TENANT_BURST": "8", "TENANT_MAX_INFLIGHT": "3", "TENANT_QUEUE": "2",
	"TENANT_QUEUE_WAIT": "250ms", "MAX_INFLIGHT": "6", "RATE_TABLE_SIZE": "50", "RATE_IDLE": "1m", "KEY_MAX_PRINCIPALS": "5", "RATE_CALLER_RPM": "30",
	"RATE_CALLER_BURST": "4", "RATE_AUTH_PER_MINUTE": "0", "TRUSTED_PROXIES": "10.0.0.0/8, ::1", "REDIS_URL": "redis://:s3cr3t@r:6379", "REDIS_TIMEOUT": "20ms",
	"LIMITS_ON_STORE_FAILURE": "closed", "DATABASE_URL": "postgres://u:s3cr3t@d/state", "VAULT_KEY": "s3cr3t-v", "VAULT_KEY_FILE": "", "VAULT_KEY_PREVIOUS": "s3cr3t-p", "VAULT_KEY_PREVIOUS_FILE": "", "ADMIN_TOKEN": "s3cr3t-a", "ADMIN_TOKEN_FILE": "",
	"RECEIPT_SYNC": "interval", "RECEIPT_INTENT": "writes", "RECEIPT_ON_FAILURE": "allow", "RECEIPT_RETENTION": "720h", "RECEIPT_ANCHOR": "/a/anchor", "MAX_REQUEST_BODY": "1MiB",
	"STREAM_IDLE": "off", "STREAM_MAX": "1h", "CLIENT_STALL": "0", "DRAIN_TIMEOUT": "1s", "LOG_LEVEL": "debug", "LOG_FORMAT": "text",
}

// Every setting can be given in each of the three places under its own name,
// and reaches the field of that name.
func TestEverySettingFromEveryPlace(t *testing.T) {
	defaults, err := load(t, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(config.Table()) != len(samples) {
		t.Errorf("%d settings, %d samples", len(config.Table()), len(samples))
	}
	for _, row := range config.Table() {
		name := strings.TrimPrefix(row.Name, "AGENTGATE_")
		value, ok := samples[name]
		if !ok {
			t.Errorf("no sample of %s", name)
		}
		if value == "" {
			continue // by file: see TestSecretFiles
		}
		places := map[string]func() (*config.Settings, error){
			"flag " + row.Flag: func() (*config.Settings, error) {
				return load(t, withPair(name, row.Flag, value), nil)
			},
			"environment " + row.Name: func() (*config.Settings, error) {
				return load(t, nil, envPair(name, value))
			},
			"r.yaml:4:3 server." + row.Member: func() (*config.Settings, error) {
				server := []config.Setting{in(row.Member, value)}
				if strings.HasPrefix(name, "TLS_") {
					server = append(server, in("tls_cert_file", "x"), in("tls_key_file", "x"))
				}
				if name == "RATE_CALLER_BURST" {
					server = append(server, in("rate_caller_rpm", "30"))
				}
				return load(t, nil, nil, server...)
			},
		}
		for source, get := range places {
			if name == "REGISTRY" && strings.HasPrefix(source, "r.yaml") {
				continue
			}
			s, err := get()
			if err != nil {
				t.Errorf("%s: %v", source, err)
				continue
			}
			if got := s.Source(row.Name); got != source {
				t.Errorf("%s comes from %q, want %q", row.Name, got, source)
			}
			if reflect.DeepEqual(fieldOf(t, s, name), fieldOf(t, defaults, name)) {
				t.Errorf("%s: the field is still the default", source)
			}
		}
	}
}

func withPair(name, flag, value string) []string {
	args := []string{flag + "=" + value}
	if strings.HasPrefix(name, "TLS_") {
		args = append([]string{"--tls-cert-file=x", "--tls-key-file=x"}, args...)
	}
	if name == "RATE_CALLER_BURST" {
		args = append(args, "--rate-caller-rpm=30")
	}
	return args
}

func envPair(name, value string) []string {
	var env []string
	for _, arg := range withPair(name, "--"+name, value) {
		k, v, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		env = append(env, "AGENTGATE_"+strings.ToUpper(strings.ReplaceAll(k, "-", "_"))+"="+v)
	}
	return env
}

// fieldOf finds the field whose name is the setting's without underscores.
func fieldOf(t *testing.T, s *config.Settings, name string) any {
	t.Helper()
	flat := strings.ToLower(strings.ReplaceAll(name, "_", ""))
	v := reflect.ValueOf(*s)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && strings.ToLower(f.Name) == flat {
			return v.Field(i).Interface()
		}
	}
	t.Fatalf("no field for %s", name)
	return nil
}

func TestPrecedence(t *testing.T) {
	flag, env, server := []string{"--rate-key-rps", "1"}, []string{"AGENTGATE_RATE_KEY_RPS=2"}, in("rate_key_rps", "3")
	tests := []struct {
		flags, env []string
		server     []config.Setting
		want       float64
		source     string
	}{
		{flag, env, []config.Setting{server}, 1, "flag --rate-key-rps"},
		{nil, env, []config.Setting{server}, 2, "environment AGENTGATE_RATE_KEY_RPS"},
		{nil, nil, []config.Setting{server}, 3, "r.yaml:4:3 server.rate_key_rps"},
		{nil, nil, nil, 20, "default"},
		// Whoever is overruled need not be sound; empty is nobody.
		{flag, []string{"AGENTGATE_RATE_KEY_RPS=fast"}, []config.Setting{server}, 1, "flag --rate-key-rps"},
		{nil, []string{"AGENTGATE_RATE_KEY_RPS="}, []config.Setting{server}, 3, "r.yaml:4:3 server.rate_key_rps"},
		{nil, []string{"AGENTGATE_RATE_KEY_RPS="}, nil, 20, "default"},
	}
	for _, tt := range tests {
		// The hour's rule would refuse the default burst of a slow key.
		s, err := load(t, append([]string{"--rate-key-burst=40"}, tt.flags...), tt.env, tt.server...)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.RateKeyRPS != tt.want || s.Source("AGENTGATE_RATE_KEY_RPS") != tt.source {
			t.Errorf("%v from %s, want %v from %s", s.RateKeyRPS, s.Source("AGENTGATE_RATE_KEY_RPS"), tt.want, tt.source)
		}
	}
	if _, err := load(t, flag, nil, in("rate_key_rps", "fast")); err == nil {
		t.Error("a malformed file was taken because a flag overrules it")
	}
}

func TestEmptyIsUnset(t *testing.T) {
	var environ []string
	for _, row := range config.Table() {
		environ = append(environ, row.Name+"=")
	}
	s, err := load(t, nil, environ)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range s.Values() {
		if v.Source != "default" {
			t.Errorf("%+v", v)
		}
	}
	if s.TenantMaxInflight != 32 || !s.AdminToken.Empty() {
		t.Errorf("%+v", s)
	}
	// Spaces are neither a value nor nothing, for every setting alike.
	for _, row := range config.Table() {
		if _, err := load(t, nil, []string{row.Name + "=  "}); err == nil || !strings.Contains(err.Error(), row.Name+": holds nothing but spaces") {
			t.Errorf("%s: %v", row.Name, err)
		}
	}
}

func TestRefused(t *testing.T) {
	tests := []struct {
		flags, env []string
		server     []config.Setting
		want       string
	}{
		{nil, []string{"AGENTGATE_RATE_KEY_RPS=1_000"}, nil, `environment: AGENTGATE_RATE_KEY_RPS: "1_000" is not a plain decimal number such as 20 or 0.5`},
		{nil, []string{"AGENTGATE_MAX_INFLIGHT=010"}, nil, `environment: AGENTGATE_MAX_INFLIGHT: "010" is not a plain whole number such as 20`},
		{nil, []string{"AGENTGATE_MAX_INFLIGHT=3.0"}, nil, `environment: AGENTGATE_MAX_INFLIGHT: "3.0" is not a plain whole number such as 20`},
		{nil, []string{"AGENTGATE_MAX_INFLIGHT=-1"}, nil, `environment: AGENTGATE_MAX_INFLIGHT: "-1" is negative`},
		{nil, []string{"AGENTGATE_RATE_TENANT_RPS=NaN"}, nil, `environment: AGENTGATE_RATE_TENANT_RPS: "NaN" is not a finite number`},
		{nil, []string{"AGENTGATE_RATE_TENANT_RPS=+Inf"}, nil, `environment: AGENTGATE_RATE_TENANT_RPS: "+Inf" is not a finite number`},
		{nil, []string{"AGENTGATE_STREAM_IDLE=30"}, nil, `environment: AGENTGATE_STREAM_IDLE: "30" has no unit: write 250ms, 30s or 10m`},
		{nil, []string{"AGENTGATE_DRAIN_TIMEOUT=1d"}, nil, `environment: AGENTGATE_DRAIN_TIMEOUT: "1d" is in days, which are written in hours: 24h`},
		{nil, []string{"AGENTGATE_MAX_REQUEST_BODY=10MB"}, nil, `environment: AGENTGATE_MAX_REQUEST_BODY: "10MB" is not a size such as 4096, 64KiB, 10MiB or 1GiB`},
		{nil, []string{"AGENTGATE_RECEIPT_SYNC=alway"}, nil, `environment: AGENTGATE_RECEIPT_SYNC: "alway" is none of always, interval; did you mean always?`},
		{nil, []string{"AGENTGATE_RECEIPT_RETENTION=0"}, nil, `environment: AGENTGATE_RECEIPT_RETENTION: 0 is not a value here; leave it unset for the default`},
		{nil, []string{"AGENTGATE_RATE_CALLER_RPM=0"}, nil, `environment: AGENTGATE_RATE_CALLER_RPM: 0 is not a value here; leave it unset for the default`},
		{nil, []string{"AGENTGATE_RATE_CALLER_BURST=5"}, nil, `environment: AGENTGATE_RATE_CALLER_BURST: a burst without its rate limits nothing: give AGENTGATE_RATE_CALLER_RPM too`},
		{nil, nil, []config.Setting{in("rate_caller_burst", "5")}, `r.yaml:4:3: server.rate_caller_burst: a burst without its rate limits nothing: give server.rate_caller_rpm too`},
		{[]string{"--rate-caller-burst=5"}, nil, nil, `flag: --rate-caller-burst: a burst without its rate limits nothing: give --rate-caller-rpm too`},
		{nil, []string{"AGENTGATE_RATE_CALLER_RPM=1", "AGENTGATE_RATE_CALLER_BURST=61"}, nil, `environment: AGENTGATE_RATE_CALLER_BURST: a burst of 61 is more than an hour of its rate of 1 a minute`},
		{[]string{"--rate-caller-rpm=7"}, []string{"AGENTGATE_RATE_CALLER_BURST=421"}, nil, `environment: AGENTGATE_RATE_CALLER_BURST: a burst of 421 is more than an hour of its rate of 7 a minute`},
		{nil, []string{"AGENTGATE_RATE_CALLER_BURST=0"}, nil, `environment: AGENTGATE_RATE_CALLER_BURST: 0 is not a value here; leave it unset for the default`},
		{nil, []string{"AGENTGATE_RATE_CALLER_RPM=-5"}, nil, `environment: AGENTGATE_RATE_CALLER_RPM: "-5" is negative`},
		{[]string{"--rate-caller-rpm=99999999999"}, nil, nil, `flag: --rate-caller-rpm: a rate over 60000000000 a minute cannot be kept`},
		{nil, nil, []config.Setting{in("rate_caller_rpm", "0")}, `r.yaml:4:3: server.rate_caller_rpm: 0 is not a value here; leave it unset for the default`},
		{nil, []string{"AGENTGATE_RATE_TENANT_RPS=0", "AGENTGATE_RATE_TENANT_BURST=5"}, nil,
			`environment: AGENTGATE_RATE_TENANT_BURST: a burst without its rate limits nothing, and environment AGENTGATE_RATE_TENANT_RPS is 0: give a rate, or 0 for both`},
		{nil, []string{"AGENTGATE_RATE_TENANT_RPS=0"}, []config.Setting{in("rate_tenant_rps", "5"), in("rate_tenant_burst", "7")},
			`r.yaml:4:3: server.rate_tenant_burst: a burst without its rate limits nothing, and environment AGENTGATE_RATE_TENANT_RPS is 0: give a rate, or 0 for both`},
		{[]string{"--rate-key-rps=0.01"}, nil, nil, `flag: --rate-key-rps: a burst of 40 is more than an hour of its rate of 0.01 a second; nobody gave the burst: give AGENTGATE_RATE_KEY_BURST too`},
		{nil, nil, []config.Setting{in("rate_key_rps", "0.0000000001")}, `r.yaml:4:3: server.rate_key_rps: a burst of 1 is more than an hour of its rate of 0.0000000001 a second`},
		{nil, nil, []config.Setting{in("rate_key_rps", "0.01"), in("rate_key_burst", "40")}, `r.yaml:4:3: server.rate_key_burst: a burst of 40 is more than an hour of its rate of 0.01 a second`},
		{nil, []string{"AGENTGATE_RATE_CALLER_RPM=0.001"}, nil, `environment: AGENTGATE_RATE_CALLER_RPM: a burst of 1 is more than an hour of its rate of 0.001 a minute`},
		{nil, []string{"AGENTGATE_LISTEN=127.0.0.1:9090"}, nil, `environment: AGENTGATE_LISTEN: is taken by AGENTGATE_ADMIN_LISTEN already: agents and operators need an address each`},
		{nil, []string{"AGENTGATE_LISTEN=:80"}, []config.Setting{in("admin_listen", "h.example:80")}, `r.yaml:4:3: server.admin_listen: is taken by AGENTGATE_LISTEN already: agents and operators need an address each`},
		{nil, []string{"AGENTGATE_LISTEN=0.0.0.0:80"}, []config.Setting{in("admin_listen", "10.0.0.1:80")}, `r.yaml:4:3: server.admin_listen: is taken by AGENTGATE_LISTEN already: agents and operators need an address each`},
		{nil, []string{"AGENTGATE_LISTEN=[::]:80"}, []config.Setting{in("admin_listen", "10.0.0.1:80")}, `r.yaml:4:3: server.admin_listen: is taken by AGENTGATE_LISTEN already: agents and operators need an address each`},
		{nil, []string{"AGENTGATE_VAULT_KEY=x"}, []config.Setting{in("admin_token", "x"), in("admin_token_file", "/dev/null")}, `r.yaml:4:3: server.admin_token: is given, and server.admin_token_file too: which one counts?`},
		{[]string{"--rate-key-rps=2000000000"}, nil, nil, `flag: --rate-key-rps: a rate over 1000000000 a second cannot be kept`},
		{[]string{"--rate-key-rps="}, nil, nil, `flag: --rate-key-rps: is empty`},
		{nil, []string{"AGENTGATE_KEY_MAX_PRINCIPALS=0"}, nil, `environment: AGENTGATE_KEY_MAX_PRINCIPALS: 0 is not a value here; leave it unset for the default`},
		{nil, []string{"AGENTGATE_LISTEN=8080"}, nil, `environment: AGENTGATE_LISTEN: "8080" has no port: write HOST:PORT`},
		{nil, []string{"AGENTGATE_LISTEN=::1:8080"}, nil, `environment: AGENTGATE_LISTEN: "::1:8080" has no port: write HOST:PORT`},
		{nil, []string{"AGENTGATE_LISTEN=[fe80::1%eth0]:80"}, nil, `environment: AGENTGATE_LISTEN: "[fe80::1%eth0]" has a zone, which means nothing outside this machine`},
		{nil, []string{"AGENTGATE_LISTEN=localhost:http"}, nil, `environment: AGENTGATE_LISTEN: the port "http" is not a number from 1 to 65535`},
		{nil, []string{"AGENTGATE_TRUSTED_PROXIES=10.1.2.3/8"}, nil, `environment: AGENTGATE_TRUSTED_PROXIES: "10.1.2.3/8" has bits beyond its length: write 10.0.0.0/8 or 10.1.2.3`},
		{nil, []string{"AGENTGATE_TRUSTED_PROXIES=::ffff:10.1.2.3/104"}, nil, `environment: AGENTGATE_TRUSTED_PROXIES: "::ffff:10.1.2.3/104" has bits beyond its length: write 10.0.0.0/8 or 10.1.2.3`},
		{nil, []string{"AGENTGATE_TRUSTED_PROXIES=::ffff:0:0/90"}, nil, `environment: AGENTGATE_TRUSTED_PROXIES: "::ffff:0:0/90" is not a network such as 10.0.0.0/8 or fd00::/8, nor an address`},
		{nil, []string{"AGENTGATE_TRUSTED_PROXIES=fe80::1%eth0"}, nil, `environment: AGENTGATE_TRUSTED_PROXIES: "fe80::1%eth0" is not a network such as 10.0.0.0/8 or fd00::/8, nor an address`},
		{nil, []string{"AGENTGATE_TRUSTED_PROXIES=10.0.0.0/8,"}, nil, `environment: AGENTGATE_TRUSTED_PROXIES: "" is not a network such as 10.0.0.0/8 or fd00::/8, nor an address`},
		{nil, []string{"AGENTGATE_PUBLIC_URL=gw.example"}, nil, `environment: AGENTGATE_PUBLIC_URL: does not begin with http:// or https://`},
		{nil, []string{"AGENTGATE_PUBLIC_URL=https://user:s3cr3t@gw.example"}, nil, `environment: AGENTGATE_PUBLIC_URL: has a user, a query, a fragment or a backslash: write scheme, host, port and path alone`},
		{nil, []string{"AGENTGATE_PUBLIC_URL=https://gw.example/?a=s3cr3t"}, nil, `environment: AGENTGATE_PUBLIC_URL: has a user, a query, a fragment or a backslash: write scheme, host, port and path alone`},
		{nil, []string{"AGENTGATE_PUBLIC_URL=https://"}, nil, `environment: AGENTGATE_PUBLIC_URL: the host is missing`},
		{nil, []string{"AGENTGATE_PUBLIC_URL=https://gw.example:0"}, nil, `environment: AGENTGATE_PUBLIC_URL: the port "0" is not a number from 1 to 65535`},
		{nil, []string{"AGENTGATE_PUBLIC_URL=https://GW.example"}, nil, `environment: AGENTGATE_PUBLIC_URL: the host "GW.example" is in upper case: write gw.example`},
		{nil, []string{"AGENTGATE_PUBLIC_URL=https://gw.example/a b"}, nil, `environment: AGENTGATE_PUBLIC_URL: holds " "`},
		{nil, []string{"AGENTGATE_TLS_CERT_FILE=c"}, nil, `environment: AGENTGATE_TLS_CERT_FILE: TLS needs both a certificate and its key`},
		{nil, nil, []config.Setting{in("tls_key_file", "k")}, `r.yaml:4:3: server.tls_key_file: TLS needs both a certificate and its key`},
		{nil, nil, []config.Setting{in("rate_key_rp", "1")}, `r.yaml:4:3: server.rate_key_rp: there is no such setting; did you mean rate_key_rps?`},
		{nil, nil, []config.Setting{in("registry", "x")}, `r.yaml:4:3: server.registry: a registry cannot say where it lies itself`},
		{nil, []string{"AGENTGATE_LOG_LEVEL=INFO"}, nil, `environment: AGENTGATE_LOG_LEVEL: "INFO" is none of debug, info, warn, error; did you mean info?`},
		{nil, []string{"AGENTGATE_REDIS_URL=http://:s3cr3t@[::1]:6379"}, nil, `environment: AGENTGATE_REDIS_URL: is not redis://[user:password@]host:port[/db], or rediss:// for TLS, nor redis+sentinel://host,host/MASTER or redis+cluster://host,host`},
		{nil, nil, []config.Setting{in("database_url", "mysql://u:s3cr3t@d")}, `r.yaml:4:3: server.database_url: is not postgres://USER:PASSWORD@HOST:PORT/DATABASE`},
		{nil, []string{"AGENTGATE_DATABASE_URL=postgres://u:s3c@r3t@d"}, nil, `environment: AGENTGATE_DATABASE_URL: has two @: in a password it is written %40`},
	}
	for _, tt := range tests {
		_, err := load(t, tt.flags, tt.env, tt.server...)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%v %v %v:\n got %v\nwant %s", tt.flags, tt.env, tt.server, err, tt.want)
		}
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	_, err := load(t, []string{"--max-inflight=03"},
		[]string{"AGENTGATE_RATE_KEY_RP=1", "AGENTGATE_STREAM_IDLE=5", "AGENTGATE_COLOUR=red", "AGENTGATE_rate_idle=", "HOME=/x", "AGENTGATES=1"}, in("rate_idle", "x"), in("nope", "x"))
	want := `environment: AGENTGATE_COLOUR: there is no such setting
environment: AGENTGATE_RATE_KEY_RP: there is no such setting; did you mean AGENTGATE_RATE_KEY_RPS?
environment: AGENTGATE_rate_idle: there is no such setting; did you mean AGENTGATE_RATE_IDLE?
r.yaml:4:3: server.nope: there is no such setting
flag: --max-inflight: "03" is not a plain whole number such as 20
r.yaml:4:3: server.rate_idle: "x" is not a duration such as 250ms, 30s or 10m
environment: AGENTGATE_STREAM_IDLE: "5" has no unit: write 250ms, 30s or 10m`
	if err == nil || err.Error() != want {
		t.Error(cmp.Diff(want, fmt.Sprint(err)))
	}
}

func TestKubernetes(t *testing.T) {
	injected := []string{
		"AGENTGATE_PORT=tcp://10.0.0.1:8080", "AGENTGATE_PORT_8080_TCP=tcp://10.0.0.1:8080", "AGENTGATE_PORT_8080_TCP_PROTO=tcp",
		"AGENTGATE_PORT_8080_TCP_PORT=8080", "AGENTGATE_PORT_8080_TCP_ADDR=10.0.0.1", "AGENTGATE_SERVICE_HOST=10.0.0.1", "AGENTGATE_SERVICE_PORT=8080",
		"AGENTGATE_SERVICE_PORT_HTTP=8080", "AGENTGATE_ADMIN_PORT=tcp://10.0.0.2:9090", "AGENTGATE_ADMIN_SERVICE_HOST=10.0.0.2", "AGENTGATE_ADMIN_PORT_9090_TCP_ADDR=10.0.0.2",
	}
	if _, err := load(t, nil, injected); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"AGENTGATE_PORTS", "AGENTGATE_PORT_TCP", "AGENTGATE_PORT_X_TCP", "AGENTGATE_SERVICE", "AGENTGATE_SERVICE_HOSTS", "AGENTGATE_SUPPORT", "AGENTGATE_"} {
		if _, err := load(t, nil, []string{name + "=1"}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func TestZeroDisables(t *testing.T) {
	tests := []struct {
		env  []string
		get  func(*config.Settings) any
		want any
	}{
		{[]string{"AGENTGATE_RATE_KEY_RPS=0"}, func(s *config.Settings) any { return [2]any{s.RateKeyRPS, s.RateKeyBurst} }, [2]any{0.0, 0}},
		{[]string{"AGENTGATE_RATE_KEY_BURST=0"}, func(s *config.Settings) any { return [2]any{s.RateKeyRPS, s.RateKeyBurst} }, [2]any{20.0, 0}},
		{[]string{"AGENTGATE_RATE_TENANT_RPS=0"}, func(s *config.Settings) any { return [2]any{s.RateTenantRPS, s.RateTenantBurst} }, [2]any{0.0, 0}},
		{[]string{"AGENTGATE_RATE_TENANT_RPS=0", "AGENTGATE_RATE_TENANT_BURST=0"}, func(s *config.Settings) any { return s.RateTenantRPS }, 0.0},
		{[]string{"AGENTGATE_TENANT_MAX_INFLIGHT=0"}, func(s *config.Settings) any { return s.TenantMaxInflight }, 0},
		{[]string{"AGENTGATE_RATE_AUTH_PER_MINUTE=0"}, func(s *config.Settings) any { return s.RateAuthPerMinute }, 0},
		{[]string{"AGENTGATE_MAX_REQUEST_BODY=0"}, func(s *config.Settings) any { return s.MaxRequestBody }, int64(0)},
		{[]string{"AGENTGATE_STREAM_IDLE=0"}, func(s *config.Settings) any { return s.StreamIdle }, time.Duration(0)},
		{[]string{"AGENTGATE_STREAM_MAX=0s"}, func(s *config.Settings) any { return s.StreamMax }, time.Duration(0)},
		{[]string{"AGENTGATE_RATE_CALLER_RPM=1.5"}, func(s *config.Settings) any { return s.RateCallerBurst }, 2},
	}
	for _, tt := range tests {
		s, err := load(t, nil, tt.env)
		if err != nil {
			t.Errorf("%v: %v", tt.env, err)
		} else if got := tt.get(s); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.env, got, tt.want)
		}
	}
}

// Texts arrive as they were written, whatever they look like.
func TestTextsKeepTheirLetters(t *testing.T) {
	for _, v := range []string{"0123", "0o17", "1e3", "1_000", "0x1F", "12:30:45", "~", "null", ".5", "no", "on", " x ", "a,b", "a=b", "${HOME}", "é"} {
		s, err := load(t, nil, []string{"AGENTGATE_DATA_DIR=" + v, "AGENTGATE_ADMIN_TOKEN=" + v})
		if err != nil {
			t.Error(err)
		} else if s.DataDir != v || s.AdminToken.Reveal() != v {
			t.Errorf("%q became %q and %q", v, s.DataDir, s.AdminToken.Reveal())
		}
	}
}

func TestLists(t *testing.T) {
	s, err := load(t, nil, []string{"AGENTGATE_TRUSTED_PROXIES=10.0.0.0/8 , 192.168.0.1,fd00::/8,::ffff:10.9.9.9,::ffff:172.16.0.0/108"})
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.1/32"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("10.9.9.9/32"),
		netip.MustParsePrefix("172.16.0.0/12"),
	}
	if !reflect.DeepEqual(s.TrustedProxies, want) {
		t.Error(s.TrustedProxies)
	}
	if s, err := load(t, []string{"--log-level=warn"}, nil); err != nil || s.LogLevel != slog.LevelWarn {
		t.Error(err)
	}
}

func TestSecretFiles(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for text, want := range map[string]string{
		"s3cr3t": "s3cr3t", "s3cr3t\n": "s3cr3t", "s3cr3t\r\n": "s3cr3t", "s3cr3t\n\n": "s3cr3t\n", " s3cr3t \n": " s3cr3t ", "s3cr3t\r": "s3cr3t\r",
	} {
		path := write("k", text)
		s, err := load(t, nil, []string{"AGENTGATE_VAULT_KEY_FILE=" + path})
		if err != nil {
			t.Fatal(err)
		}
		if s.VaultKey.Reveal() != want || s.Source("AGENTGATE_VAULT_KEY") != "environment AGENTGATE_VAULT_KEY_FILE" {
			t.Errorf("%q became %q from %s", text, s.VaultKey.Reveal(), s.Source("AGENTGATE_VAULT_KEY"))
		}
	}
	file := write("token", "from-file\n")
	empty, large := write("empty", "\n"), write("large", strings.Repeat("s", 64<<10+1))
	missing := filepath.Join(folder, "missing")
	tests := []struct {
		flags, env []string
		want       string // of the token, or of the error
	}{
		{[]string{"--admin-token-file", file}, []string{"AGENTGATE_ADMIN_TOKEN=s3cr3t"}, "from-file"},
		{[]string{"--admin-token", "from-flag"}, []string{"AGENTGATE_ADMIN_TOKEN_FILE=" + missing}, "from-flag"},
		{nil, []string{"AGENTGATE_ADMIN_TOKEN=s3cr3t", "AGENTGATE_ADMIN_TOKEN_FILE=" + file}, "environment: AGENTGATE_ADMIN_TOKEN: is given, and AGENTGATE_ADMIN_TOKEN_FILE too: which one counts?"},
		{nil, []string{"AGENTGATE_ADMIN_TOKEN_FILE=" + missing}, "environment: AGENTGATE_ADMIN_TOKEN_FILE: open " + missing + ": no such file or directory"},
		{nil, []string{"AGENTGATE_ADMIN_TOKEN_FILE=" + empty}, "environment: AGENTGATE_ADMIN_TOKEN_FILE: " + empty + " is empty"},
		{nil, []string{"AGENTGATE_ADMIN_TOKEN_FILE=" + large}, "environment: AGENTGATE_ADMIN_TOKEN_FILE: " + large + " is larger than 65536 bytes"},
	}
	for _, tt := range tests {
		s, err := load(t, tt.flags, tt.env)
		got := fmt.Sprint(err)
		if err == nil {
			got = s.AdminToken.Reveal()
		}
		if got != tt.want {
			t.Errorf("%v %v:\n got %s\nwant %s", tt.flags, tt.env, got, tt.want)
		}
	}
}

// No way of printing the settings, and no error about them, shows a secret.
func TestNoSecretShows(t *testing.T) {
	environ := []string{"AGENTGATE_VAULT_KEY=s3cr3t-vault", "AGENTGATE_ADMIN_TOKEN=s3cr3t-token"}
	s, err := load(t, nil, environ)
	if err != nil {
		t.Fatal(err)
	}
	out := fmt.Sprintf("%v %+v %#v %v", s, *s, s, s.Values())
	_, err = load(t, nil, append(environ, "AGENTGATE_REDIS_URL=redis://:s3cr3t@r", "AGENTGATE_DATABASE_URL=postgres://u:s3cr3t@d/x?sslmode=no", "AGENTGATE_ADMIN_TOKEN_FILE=x", "AGENTGATE_MAX_INFLIGHT=x"))
	if out += fmt.Sprint(err); err == nil || strings.Contains(out, "s3cr3t") {
		t.Error(out)
	}
	for _, v := range s.Values() {
		if v.Name == "AGENTGATE_VAULT_KEY" && (v.Text != "[redacted]" || v.Source != "environment AGENTGATE_VAULT_KEY") {
			t.Errorf("%+v", v)
		}
	}
}

// Reading another environment leaves that of the process as it was.
func TestProcessEnvironmentStays(t *testing.T) {
	t.Setenv("AGENTGATE_DATA_DIR", "mine")
	t.Setenv("AGENTGATE_LISTEN", "")
	s, err := load(t, nil, []string{"AGENTGATE_RATE_KEY_RPS=7", "AGENTGATE_RATE_KEY_BURST=7"})
	if err != nil {
		t.Fatal(err)
	}
	if s.DataDir != "./data" || s.RateKeyRPS != 7 {
		t.Errorf("the process's own environment was read: %s %v", s.DataDir, s.RateKeyRPS)
	}
	_, leaked := os.LookupEnv("AGENTGATE_RATE_KEY_RPS")
	if v, ok := os.LookupEnv("AGENTGATE_LISTEN"); os.Getenv("AGENTGATE_DATA_DIR") != "mine" || v != "" || !ok || leaked {
		t.Error("the process's environment has changed")
	}
	// A name without the prefix is somebody else's.
	t.Setenv("REDIS_URL", "redis://other")
	t.Setenv("MAX_INFLIGHT", "7")
	if s, err := load(t, nil, []string{"REDIS_URL=redis://other", "MAX_INFLIGHT=7"}); err != nil || s.MaxInflight != 0 {
		t.Error(err)
	}
}

func TestRegistryPath(t *testing.T) {
	tests := []struct {
		flags, env []string
		path       string
		explicit   bool
	}{
		{nil, nil, "registry.yaml", false},
		{nil, []string{"AGENTGATE_REGISTRY="}, "registry.yaml", false},
		{nil, []string{"AGENTGATE_REGISTRY=e.yaml", "AGENTGATE_MAX_INFLIGHT=x"}, "e.yaml", true},
		{[]string{"--registry", "f.yaml"}, []string{"AGENTGATE_REGISTRY=e.yaml"}, "f.yaml", true},
	}
	for _, tt := range tests {
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		config.Flags(fs)
		if err := fs.Parse(tt.flags); err != nil {
			t.Fatal(err)
		}
		path, explicit, err := config.RegistryPath(fs, tt.env)
		if err != nil || path != tt.path || explicit != tt.explicit {
			t.Errorf("%v %v: %s %v %v", tt.flags, tt.env, path, explicit, err)
		}
	}
	if _, _, err := config.RegistryPath(nil, []string{"AGENTGATE_REGISTRY= "}); err == nil {
		t.Error("spaces were taken for a path")
	}
}

func TestHelpListsEverySetting(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.Flags(fs)
	help := fs.FlagUsages()
	for _, row := range config.Table() {
		if !strings.Contains(help, row.Flag+" ") || !strings.Contains(help, row.Meaning+" (default "+row.Default+")") {
			t.Errorf("%s is not in the help with its default %s", row.Flag, row.Default)
		}
	}
	if err := fs.Parse([]string{"--data", "/short"}); err != nil {
		t.Fatal(err)
	}
	if s, err := config.Load(fs, nil, nil); err != nil || s.DataDir != "/short" {
		t.Error(err)
	}
}

// TestPlace: a setting is told with the place that it came from.
func TestPlace(t *testing.T) {
	s, err := load(t, nil, nil, in("tenant_queue", "3"))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Place("AGENTGATE_TENANT_QUEUE"); got != "r.yaml:4:3: server.tenant_queue" {
		t.Error(got)
	}
	if got := s.Place("AGENTGATE_LISTEN"); got != "default: AGENTGATE_LISTEN" {
		t.Error(got)
	}
}

// TestPublicURL: it is compared as a text, so that it has one spelling.
func TestPublicURL(t *testing.T) {
	for given, want := range map[string]string{
		"": "", "https://gw.example/": "https://gw.example", "https://gw.example": "https://gw.example",
		"http://127.0.0.1:8080/gate/": "http://127.0.0.1:8080/gate",
	} {
		s, err := load(t, nil, []string{"AGENTGATE_PUBLIC_URL=" + given})
		if err != nil || s.PublicURL != want {
			t.Errorf("%q: %q, %v", given, s.PublicURL, err)
		}
		if uri := s.DelegationURI(); want != "" && uri != want || want == "" && uri != "urn:agentgate" {
			t.Errorf("%q: delegations are for %q", given, uri)
		}
	}
}
