package config

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"agentgw/internal/literal"
	"agentgw/internal/secret"
)

// prefix begins the name of every variable.
const prefix = "AGENTGATE_"

// row is one setting: its names, its default and how its text is read.
type row struct {
	name    string // of the variable
	field   string // of environment
	kind    string // what the help shows in place of a value
	def     string // what is read where nobody gives a value; "": nothing is
	shown   string // the default in words, where def does not say it
	meaning string
	secret  bool // its value is in no output; it may come from a file as well
	read    func(*Settings, string) error
}

// rows is every setting, in the order in which people read of them.
var rows = []row{
	{"LISTEN", "Listen", "address", "127.0.0.1:8080", "", "agents' address", false,
		into(func(s *Settings) *string { return &s.Listen }, address)},
	{"ADMIN_LISTEN", "AdminListen", "address", "127.0.0.1:9090", "", "operators' address: admin API, metrics, health", false,
		into(func(s *Settings) *string { return &s.AdminListen }, address)},
	{"TLS_CERT_FILE", "TLSCertFile", "file", "", "none", "certificate chain for TLS (with HTTP/2) on the agents' address; re-read on change", false,
		into(func(s *Settings) *string { return &s.TLSCertFile }, text)},
	{"TLS_KEY_FILE", "TLSKeyFile", "file", "", "none", "private key of the certificate", false,
		into(func(s *Settings) *string { return &s.TLSKeyFile }, text)},
	{"PUBLIC_URL", "PublicURL", "url", "", "none", "where agents and people reach the gateway, such as https://gw.example; delegations are made for it, and are void when it changes; people who connect an account are sent back to it", false,
		into(func(s *Settings) *string { return &s.PublicURL }, publicURL)},
	{"REGISTRY", "Registry", "file", "registry.yaml", "", "what is served", false,
		into(func(s *Settings) *string { return &s.Registry }, text)},
	{"DATA_DIR", "DataDir", "folder", "./data", "", "where state and receipts live", false,
		into(func(s *Settings) *string { return &s.DataDir }, text)},

	{"RATE_KEY_RPS", "RateKeyRPS", "number", "20", "", "calls a second for each key; 0 disables", false,
		into(func(s *Settings) *float64 { return &s.RateKeyRPS }, literal.Decimal)},
	{"RATE_KEY_BURST", "RateKeyBurst", "number", "40", "", "calls that a key may save up; 0 disables", false,
		into(func(s *Settings) *int { return &s.RateKeyBurst }, literal.Whole)},
	{"RATE_TENANT_RPS", "RateTenantRPS", "number", "100", "", "calls a second for each tenant; 0 disables", false,
		into(func(s *Settings) *float64 { return &s.RateTenantRPS }, literal.Decimal)},
	{"RATE_TENANT_BURST", "RateTenantBurst", "number", "200", "", "calls that a tenant may save up; 0 disables", false,
		into(func(s *Settings) *int { return &s.RateTenantBurst }, literal.Whole)},
	{"TENANT_MAX_INFLIGHT", "TenantMaxInflight", "number", "32", "", "calls that a tenant may have in flight; 0 disables", false,
		into(func(s *Settings) *int { return &s.TenantMaxInflight }, literal.Whole)},
	{"TENANT_QUEUE", "TenantQueue", "number", "0", "", "callers of a tenant that may wait for a slot; 0: refuse at once", false,
		into(func(s *Settings) *int { return &s.TenantQueue }, literal.Whole)},
	{"TENANT_QUEUE_WAIT", "TenantQueueWait", "duration", "1s", "", "how long a caller may wait for a slot", false,
		into(func(s *Settings) *time.Duration { return &s.TenantQueueWait }, literal.Duration)},
	{"MAX_INFLIGHT", "MaxInflight", "number", "0", "", "calls that the whole process may have in flight, shared fairly among the waiting tenants; 0 disables", false,
		into(func(s *Settings) *int { return &s.MaxInflight }, literal.Whole)},
	{"RATE_TABLE_SIZE", "RateTableSize", "number", "100000", "", "entries kept in each table of limits", false,
		into(func(s *Settings) *int { return &s.RateTableSize }, positive(literal.Whole))},
	{"RATE_IDLE", "RateIdle", "duration", "10m", "", "idle age at which an entry may go", false,
		into(func(s *Settings) *time.Duration { return &s.RateIdle }, positive(literal.Duration))},
	{"KEY_MAX_PRINCIPALS", "KeyMaxPrincipals", "number", "64", "", "principals of one key that get a tenant of their own", false,
		into(func(s *Settings) *int { return &s.KeyMaxPrincipals }, positive(literal.Whole))},
	{"RATE_CALLER_RPM", "RateCallerRPM", "number", "", "off", "calls a minute for each caller of open services; unset is off, 0 is an error", false,
		into(func(s *Settings) *float64 { return &s.RateCallerRPM }, positive(literal.Decimal))},
	{"RATE_CALLER_BURST", "RateCallerBurst", "number", "", "the calls of one minute", "calls that a caller of open services may save up", false,
		into(func(s *Settings) *int { return &s.RateCallerBurst }, positive(literal.Whole))},
	{"RATE_AUTH_PER_MINUTE", "RateAuthPerMinute", "number", "60", "", "failed authentications a minute for each client address; 0 disables", false,
		into(func(s *Settings) *int { return &s.RateAuthPerMinute }, literal.Whole)},
	{"TRUSTED_PROXIES", "TrustedProxies", "cidrs", "", "none", "networks whose forwarding headers count, with commas between them", false,
		readProxies},

	{"REDIS_URL", "RedisURL", "url", "", "none", "shared limits in Redis or Valkey: redis://, redis+sentinel://, redis+cluster://; rediss for TLS", true,
		readSecret(func(s *Settings) *secret.Text { return &s.RedisURL })},
	{"REDIS_TIMEOUT", "RedisTimeout", "duration", "10ms", "", "how long a decision may wait for the shared limits", false,
		into(func(s *Settings) *time.Duration { return &s.RedisTimeout }, positive(literal.Duration))},
	{"LIMITS_ON_STORE_FAILURE", "LimitsOnStoreFailure", "word", "local", "", "when the shared limits cannot be reached: local, open or closed", false,
		into(func(s *Settings) *string { return &s.LimitsOnStoreFailure }, oneOf("local", "open", "closed"))},
	{"DATABASE_URL", "DatabaseURL", "url", "", "SQLite in the data folder", "shared state in PostgreSQL: keys, vault, revocations, receipt index", true,
		readSecret(func(s *Settings) *secret.Text { return &s.DatabaseURL })},
	{"VAULT_KEY", "VaultKey", "secret", "", "made on first start", "wraps the vault; better given by its file, since others can read arguments", true,
		readSecret(func(s *Settings) *secret.Text { return &s.VaultKey })},
	{"VAULT_KEY_FILE", "VaultKeyFile", "file", "", "none", "file that holds the vault key", true,
		readSecretFile(func(s *Settings) *secret.Text { return &s.VaultKey })},
	{"VAULT_KEY_PREVIOUS", "VaultKeyPrevious", "secret", "", "none", "the vault key before this one, until agentgw credentials rewrap is done", true,
		readSecret(func(s *Settings) *secret.Text { return &s.VaultKeyPrevious })},
	{"VAULT_KEY_PREVIOUS_FILE", "VaultKeyPreviousFile", "file", "", "none", "file that holds that key", true,
		readSecretFile(func(s *Settings) *secret.Text { return &s.VaultKeyPrevious })},
	{"ADMIN_TOKEN", "AdminToken", "secret", "", "made on first start", "operators' token; better given by its file, since others can read arguments", true,
		readSecret(func(s *Settings) *secret.Text { return &s.AdminToken })},
	{"ADMIN_TOKEN_FILE", "AdminTokenFile", "file", "", "none", "file that holds the operators' token", true,
		readSecretFile(func(s *Settings) *secret.Text { return &s.AdminToken })},

	{"RECEIPT_SYNC", "ReceiptSync", "word", "always", "", "always: on disk before the agent sees the end of the answer; interval: within 100 ms", false,
		into(func(s *Settings) *string { return &s.ReceiptSync }, oneOf("always", "interval"))},
	{"RECEIPT_INTENT", "ReceiptIntent", "word", "always", "", "which admitted calls write a durable intent before the upstream is called: always, writes (not GET and HEAD) or never", false,
		into(func(s *Settings) *string { return &s.ReceiptIntent }, oneOf("always", "writes", "never"))},
	{"RECEIPT_ON_FAILURE", "ReceiptOnFailure", "word", "refuse", "", "when the disk is full or cannot be written: refuse calls, or allow and count them", false,
		into(func(s *Settings) *string { return &s.ReceiptOnFailure }, oneOf("refuse", "allow"))},
	{"RECEIPT_RETENTION", "ReceiptRetention", "duration", "", "for ever", "how long receipts are kept at least; older ones are removed in whole segments, and the proof that they were there stays", false,
		into(func(s *Settings) *time.Duration { return &s.ReceiptRetention }, positive(literal.Duration))},
	{"RECEIPT_ANCHOR", "ReceiptAnchor", "file", "", "none", "file outside of the data folder, best on another volume, kept at the log's newest signed checkpoint and compared with it at each start", false,
		into(func(s *Settings) *string { return &s.ReceiptAnchor }, text)},

	{"MAX_REQUEST_BODY", "MaxRequestBody", "size", "10MiB", "", "the largest body of a request; 0 disables", false,
		into(func(s *Settings) *int64 { return &s.MaxRequestBody }, literal.Size)},
	{"STREAM_IDLE", "StreamIdle", "duration", "5m", "", "an upstream that is silent for that long is given up; 0 disables", false,
		into(func(s *Settings) *time.Duration { return &s.StreamIdle }, durationOrOff)},
	{"STREAM_MAX", "StreamMax", "duration", "off", "", "a stream older than that is ended; off or 0 disables", false,
		into(func(s *Settings) *time.Duration { return &s.StreamMax }, durationOrOff)},
	{"CLIENT_STALL", "ClientStall", "duration", "30s", "", "a client that takes no bytes, or sends none of its request, for that long is cut off; 0 disables", false,
		into(func(s *Settings) *time.Duration { return &s.ClientStall }, durationOrOff)},
	{"DRAIN_TIMEOUT", "DrainTimeout", "duration", "30s", "", "how long calls in flight may take to finish after SIGTERM", false,
		into(func(s *Settings) *time.Duration { return &s.DrainTimeout }, literal.Duration)},
	{"LOG_LEVEL", "LogLevel", "word", "info", "", "debug, info, warn or error", false,
		into(func(s *Settings) *slog.Level { return &s.LogLevel }, level)},
	{"LOG_FORMAT", "LogFormat", "word", "", "json off a terminal, else text", "json or text", false,
		into(func(s *Settings) *string { return &s.LogFormat }, oneOf("json", "text"))},
}

func (r row) variable() string { return prefix + r.name }
func (r row) member() string   { return strings.ToLower(r.name) }
func (r row) flag() string     { return strings.ReplaceAll(r.member(), "_", "-") }

func (r row) defaultText() string {
	if r.shown != "" {
		return r.shown
	}
	return r.def
}

// Row describes one setting to a reader.
type Row struct {
	Name    string // AGENTGATE_RATE_KEY_RPS
	Flag    string // --rate-key-rps
	Member  string // rate_key_rps, in the registry's server: section
	Default string // as it would be written, or in words
	Meaning string
}

// Table describes every setting. The help of `serve` is made of it, and the
// README is compared with it.
func Table() []Row {
	table := make([]Row, len(rows))
	for i, r := range rows {
		table[i] = Row{r.variable(), "--" + r.flag(), r.member(), r.defaultText(), r.meaning}
	}
	return table
}

// into reads a text with parse and keeps the result in a field.
func into[T any](field func(*Settings) *T, parse func(string) (T, error)) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		value, err := parse(v)
		if err == nil {
			*field(s) = value
		}
		return err
	}
}

// positive refuses 0 where it could only mean "nothing at all".
func positive[T int | float64 | time.Duration](parse func(string) (T, error)) func(string) (T, error) {
	return func(v string) (T, error) {
		value, err := parse(v)
		if err == nil && value == 0 {
			err = errors.New("0 is not a value here; leave it unset for the default")
		}
		return value, err
	}
}

func oneOf(words ...string) func(string) (string, error) {
	return func(v string) (string, error) { return literal.OneOf(v, words...) }
}

// text takes a text as it stands.
func text(v string) (string, error) {
	if strings.ContainsRune(v, 0) {
		return "", errors.New("holds a NUL byte")
	}
	return v, nil
}

func durationOrOff(v string) (time.Duration, error) {
	if v == "off" {
		return 0, nil
	}
	return literal.Duration(v)
}

func level(v string) (slog.Level, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	word, err := literal.OneOf(v, "debug", "info", "warn", "error")
	return levels[word], err
}

// address checks HOST:PORT for listening: the host may be missing (every
// address of the machine), and port 0 is any free one.
func address(v string) (string, error) {
	host, port, ok := literal.SplitHostPort(v)
	if !ok {
		return "", fmt.Errorf("%s has no port: write HOST:PORT", literal.Quote(v))
	}
	if host != "" {
		if err := literal.Host(host); err != nil {
			return "", err
		}
	}
	if port != "0" {
		if _, err := literal.Port(port); err != nil {
			return "", err
		}
	}
	return v, nil
}
