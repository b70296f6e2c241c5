package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/internal/config"
)

// doubtful is a member of the registry's section that the file's problems leave
// open.
func doubtful(name, value string) config.Setting {
	return config.Setting{Name: name, Value: value, Where: "r.yaml:4:3", Doubt: true}
}

// TestNoProblemOfAProblem: what could not be read is compared with nothing, all
// else is.
func TestNoProblemOfAProblem(t *testing.T) {
	const (
		noPair  = "TLS needs both a certificate and its key"
		tooMuch = "more than an hour of its rate"
		taken   = "is taken by"
		which   = "which one counts?"
	)
	for _, c := range []struct {
		name   string
		env    []string
		server []config.Setting
		has    string // among the problems; "": none of the four above is
	}{
		{"a misspelt variable", []string{"AGENTGATE_TLS_CERT_FILE=c", "AGENTGATE_TLS_KEY_FILEE=k"}, nil, ""},
		{"a misspelt member", []string{"AGENTGATE_TLS_CERT_FILE=c"}, []config.Setting{in("tls_key_fil", "k")}, ""},
		{"a malformed rate", []string{"AGENTGATE_RATE_KEY_RPS=x", "AGENTGATE_RATE_KEY_BURST=999999999"}, nil, ""},
		{"a malformed address", []string{"AGENTGATE_LISTEN=x", "AGENTGATE_ADMIN_LISTEN=127.0.0.1:8080"}, nil, ""},
		{"doubt of a member", []string{"AGENTGATE_TLS_CERT_FILE=c", "X=1", "AGENTGATE_X=1"}, []config.Setting{doubtful("tls_key_file", "")}, ""},
		{"doubt of a rate that could be read", []string{"AGENTGATE_X=1"}, []config.Setting{doubtful("rate_key_rps", "0.01"), in("rate_key_burst", "400")}, ""},
		{"doubt of everything", []string{"AGENTGATE_TLS_CERT_FILE=c", "AGENTGATE_RATE_KEY_BURST=999999999", "AGENTGATE_LISTEN=:9090", "AGENTGATE_X=1"}, []config.Setting{doubtful("", "")}, ""},
		{"a pair, beside another problem", []string{"AGENTGATE_TLS_CERT_FILE=c", "AGENTGATE_X=1"}, nil, noPair},
		{"a rate, beside another problem", []string{"AGENTGATE_RATE_KEY_BURST=999999999", "AGENTGATE_X=1"}, nil, tooMuch},
		{"an address, beside another problem", []string{"AGENTGATE_LISTEN=:9090", "AGENTGATE_X=1"}, nil, taken},
		{"a variable wins over what is in doubt", []string{"AGENTGATE_RATE_KEY_RPS=0.01", "AGENTGATE_RATE_KEY_BURST=999"}, []config.Setting{doubtful("rate_key_rps", "")}, tooMuch},
		{"what is in doubt is judged alone", []string{"AGENTGATE_X=1"}, []config.Setting{doubtful("rate_key_rps", "fast")}, "not a plain decimal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, nil, c.env, c.server...)
			if err == nil {
				if c.server == nil {
					t.Fatal("accepted")
				}
				return // the doubt itself is the registry's to report
			}
			for _, what := range []string{noPair, tooMuch, taken, which} {
				if strings.Contains(err.Error(), what) != (what == c.has) {
					t.Errorf("%q among:\n%v", what, err)
				}
			}
			if !strings.Contains(err.Error(), c.has) {
				t.Errorf("without %q:\n%v", c.has, err)
			}
		})
	}
}

// TestSettingsBesideProblems: what was read can be asked for, and says so.
func TestSettingsBesideProblems(t *testing.T) {
	s, err := load(t, nil, []string{"AGENTGATE_RATE_TENANT_RPS=x"}, in("rate_key_rps", "7"))
	if err == nil || s == nil {
		t.Fatal(err, s)
	}
	if s.RateKeyRPS != 7 || !s.Sure("AGENTGATE_RATE_KEY_RPS", "AGENTGATE_RATE_KEY_BURST") || s.Sure("AGENTGATE_RATE_KEY_RPS", "AGENTGATE_RATE_TENANT_RPS") {
		t.Errorf("%+v", s)
	}
	if s, _ = load(t, nil, nil, in("rate_key_rps", "0.0000000001")); s.Sure("AGENTGATE_RATE_KEY_RPS") {
		t.Error("a rate that was refused is sure")
	}
}

// TestARateOfTheRegistryAlone: there it has the burst that every rate of the
// registry has; elsewhere the burst keeps its default.
func TestARateOfTheRegistryAlone(t *testing.T) {
	for _, c := range []struct {
		name       string
		flags, env []string
		server     []config.Setting
		burst      int
		source     string
		derived    bool
	}{
		{"rounded up", nil, nil, []config.Setting{in("rate_key_rps", "7.2")}, 8, "r.yaml:4:3 server.rate_key_rps", true},
		{"at least 1", nil, nil, []config.Setting{in("rate_key_rps", "0.5")}, 1, "r.yaml:4:3 server.rate_key_rps", true},
		{"off", nil, nil, []config.Setting{in("rate_key_rps", "0")}, 0, "default", false},
		{"with its burst", nil, nil, []config.Setting{in("rate_key_rps", "7.2"), in("rate_key_burst", "9")}, 9, "r.yaml:4:3 server.rate_key_burst", false},
		{"with a variable's burst", nil, []string{"AGENTGATE_RATE_KEY_BURST=9"}, []config.Setting{in("rate_key_rps", "7.2")}, 9, "environment AGENTGATE_RATE_KEY_BURST", false},
		{"with a flag's burst", []string{"--rate-key-burst=9"}, nil, []config.Setting{in("rate_key_rps", "7.2")}, 9, "flag --rate-key-burst", false},
		{"overruled by a variable", nil, []string{"AGENTGATE_RATE_KEY_RPS=5"}, []config.Setting{in("rate_key_rps", "7.2")}, 40, "default", false},
		{"by a flag", []string{"--rate-key-rps=5"}, nil, nil, 40, "default", false},
	} {
		s, err := load(t, c.flags, c.env, c.server...)
		if err != nil {
			t.Error(c.name, err)
			continue
		}
		const name = "AGENTGATE_RATE_KEY_BURST"
		if s.RateKeyBurst != c.burst || s.Source(name) != c.source || s.Derived(name) != c.derived {
			t.Errorf("%s: burst %d from %s, derived %v", c.name, s.RateKeyBurst, s.Source(name), s.Derived(name))
		}
		for _, v := range s.Values() {
			if v.Name == name && c.derived && v.Text != map[int]string{8: "8", 1: "1"}[c.burst] {
				t.Errorf("%s: shown as %s", c.name, v.Text)
			}
		}
	}
}

// TestAddressesThatDoNotMeet are no mistake.
func TestAddressesThatDoNotMeet(t *testing.T) {
	for _, pair := range [][2]string{
		{"127.0.0.1:0", "127.0.0.1:0"}, {"127.0.0.1:80", "127.0.0.2:80"}, {":80", ":81"}, {"0.0.0.0:80", "[::1]:80"}, {"a.example:80", "127.0.0.1:80"},
	} {
		if _, err := load(t, []string{"--listen", pair[0], "--admin-listen", pair[1]}, nil); err != nil {
			t.Error(pair, err)
		}
	}
}

// TestTheStrongerPlaceOfASecretCounts: it may be given by value in one place and
// by its file in another.
func TestTheStrongerPlaceOfASecretCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("of the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		flags, env []string
		server     []config.Setting
		want       string
	}{
		{"environment over the registry's file", nil, []string{"AGENTGATE_ADMIN_TOKEN=of the environment"}, []config.Setting{in("admin_token_file", file)}, "of the environment"},
		{"environment's file over the registry", nil, []string{"AGENTGATE_ADMIN_TOKEN_FILE=" + file}, []config.Setting{in("admin_token", "of the registry")}, "of the file"},
		{"flag over the environment's file", []string{"--admin-token", "of the flag"}, []string{"AGENTGATE_ADMIN_TOKEN_FILE=" + file}, nil, "of the flag"},
		{"flag's file over the environment", []string{"--admin-token-file", file}, []string{"AGENTGATE_ADMIN_TOKEN=of the environment"}, nil, "of the file"},
	} {
		s, err := load(t, c.flags, c.env, c.server...)
		if err != nil || s.AdminToken.Reveal() != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestAnAnchorInTheDataFolderIsRefused: it would be rolled back with the log.
func TestAnAnchorInTheDataFolderIsRefused(t *testing.T) {
	for _, c := range []struct{ data, anchor string }{
		{"./data", "data/anchor"}, {"./data", "./data"}, {"data", "data/x/../anchor"}, {"/d", "/d/a"}, {".", "anchor"},
	} {
		_, err := load(t, []string{"--data-dir", c.data, "--receipt-anchor", c.anchor}, nil)
		if err == nil || !strings.Contains(err.Error(), "flag: --receipt-anchor") || !strings.Contains(err.Error(), "is in the data folder") {
			t.Errorf("%s in %s: %v", c.anchor, c.data, err)
		}
	}
	for _, c := range []struct{ data, anchor string }{{"./data", "data2/anchor"}, {"data", "anchor"}, {"data", "..data"}, {"data/a", "data/anchor"}, {"/d", "/a"}} {
		if _, err := load(t, []string{"--data-dir", c.data, "--receipt-anchor", c.anchor}, nil); err != nil {
			t.Errorf("%s beside %s: %v", c.anchor, c.data, err)
		}
	}
}
