package registry_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/registry"
)

func load(t testing.TB, path string) *registry.Snapshot {
	t.Helper()
	s, err := registry.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWholeFile(t *testing.T) {
	s := load(t, "testdata/whole.yaml")

	server := map[string]string{}
	for _, set := range s.Server {
		server[set.Name] = set.Value
	}
	if diff := cmp.Diff(map[string]string{"rate_key_rps": "0123", "listen": "0.0.0.0:80", "trusted_proxies": "10.0.0.0/8,192.168.0.1"}, server); diff != "" {
		t.Error("server:", diff)
	}
	if at := s.Server[0].Pos.String(); at != "testdata/whole.yaml:3:3" {
		t.Error(at)
	}

	acme := s.Tenants["acme"]
	if acme.Rate.RPS != 200 || acme.Rate.Burst != 400 || acme.Rate.BurstDefaulted || *acme.MaxInflight != 64 || acme.Weight != 2 {
		t.Errorf("acme: %+v", acme)
	}
	if no := s.Tenants["no"]; no.Rate.RPS != 2.5 || no.Rate.Burst != 3 || !no.Rate.BurstDefaulted || no.MaxInflight != nil || no.Weight != 1 {
		t.Errorf("no: %+v %+v", no, no.Rate)
	}
	if zero := s.Tenants["0123"]; zero.Rate != nil || *zero.MaxInflight != 0 {
		t.Errorf("0123: %+v", zero)
	}
	if off := s.Tenants["off"]; !off.Rate.Disabled() {
		t.Errorf("off: %+v", off.Rate)
	}

	k := s.Keys[0]
	if k.ID != "0123" || k.Digest[0] != 0x01 || k.Digest[31] != 0xef || k.Tenant != "no" || k.Rate.Burst != 10 {
		t.Errorf("key: %+v", k)
	}
	if diff := cmp.Diff([]string{"no", "on", "0123", "0o17", "1e3", "1_000", "0x1F", "12:30:45", "~", "null", ".5", "2024-01-01", "NO"}, k.Users); diff != "" {
		t.Error("users are not what was written:", diff)
	}
	if diff := cmp.Diff([]string{"u-7", "yes", "010"}, []string{k.User, k.Space, k.Org}); diff != "" {
		t.Error(diff)
	}

	github := s.Services["github"]
	if github.Access != registry.AccessKey || github.Dialect != registry.DialectNative || github.Timeout != 250*time.Millisecond ||
		!github.DelegationRequired || !github.AllowPrivate || github.Passthrough || github.MaxInflight != 8 || github.Rate.RPS != 5 ||
		github.BaseURL.String() != "https://api.github.com" || github.Credential.Type != registry.CredentialBearer || !github.Credential.PerUser {
		t.Errorf("github: %+v", github)
	}
	search := s.Services["search"]
	if search.Timeout != registry.DefaultTimeout || search.Credential.Name != "X-Api-Key" || search.Credential.PerUser || search.DelegationRequired ||
		search.AllowPrivate || search.Rate != nil || search.BaseURL.Host != "[2001:db8::5]:8080" || search.OnStoreFailure != "closed" {
		t.Errorf("search: %+v", search)
	}
	llm := s.Services["llm"]
	if llm.Access != registry.AccessOpen || llm.Dialect != registry.DialectOpenAI || llm.Credential.Type != registry.CredentialNone || !llm.WebSocket || len(llm.ChargeMessages) != 1 {
		t.Errorf("llm: %+v", llm)
	}

	want := []registry.Param{
		{Name: "owner", In: "path", Required: true, Schema: []byte(`{"type":"string"}`)},
		{Name: "repo", In: "path", Required: true, Schema: []byte(`{"type":"string"}`)},
		{Name: "state", In: "query", Schema: []byte(`{"type":"string","enum":["open","closed","no"]}`)},
		{Name: "labels", In: "query", Schema: []byte(`{"type":"string"}`)},
		{Name: "X-Trace", In: "header", Schema: []byte(`{"type":"string"}`)},
	}
	list := github.Actions["list_issues"]
	if diff := cmp.Diff(want, list.Params()); diff != "" || list.Path() != "/repos/{owner}/{repo}/issues" || list.Method != "GET" {
		t.Error(diff, list.Path(), list.Method)
	}
	var places []string
	for _, p := range github.Actions["create_issue"].Params() {
		places = append(places, p.In)
	}
	if diff := cmp.Diff([]string{"path", "path", "body", "query"}, places); diff != "" {
		t.Error(diff)
	}

	if i := s.Issuers[0]; i.UserClaim != "email" || i.Tenants["Org-1"] != "acme" {
		t.Errorf("%+v", i)
	}
	if s.Tunnels.BytesPerWindow != 100<<20 || s.Tunnels.Window != time.Hour || s.Tunnels.OnExhausted != "finish" || len(s.Tunnels.Allow) != 3 {
		t.Errorf("%+v", s.Tunnels)
	}
	at := func(line, column int) registry.Position {
		return registry.Position{File: "testdata/whole.yaml", Line: line, Column: column}
	}
	if diff := cmp.Diff([]registry.Rule{{
		Name: "per-ip", Key: "client_ip", Window: time.Minute, Most: 5, Count: registry.CountRequests, Mode: registry.ModeEnforce, OnStoreFailure: "open",
		Pos: at(58, 5), KeyPos: at(58, 25), MaxPos: at(58, 53),
	}, {
		Name: "traffic", Key: "org == null\n? caller\n: org", Window: time.Hour, Most: 10 << 20, Count: registry.CountBytes, When: "true", Mode: registry.ModeObserve,
		Cost: true, OnStoreFailure: "closed",
		Pos: at(59, 5), KeyPos: at(60, 10), MaxPos: at(65, 10), CountPos: at(66, 12), WhenPos: at(67, 11),
	}, {
		Name: "tokens", Key: "user", Window: time.Second, Max: "org == 'o' ? 2 : 1", Count: "request.params.n", Mode: registry.ModeEnforce, OnStoreFailure: "open",
		Pos: at(71, 5), KeyPos: at(71, 25), MaxPos: at(71, 48), CountPos: at(71, 77),
	}}, s.Rules); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(registry.IdentityLimits{
		User: 20, Space: 30, Org: 60, Pos: at(72, 1), UserPos: at(72, 19), SpacePos: at(72, 29), OrgPos: at(72, 40),
	}, s.IdentityLimits); diff != "" {
		t.Error(diff)
	}
	if len(s.Hash) != 64 || s.File != "testdata/whole.yaml" {
		t.Error(s.File, s.Hash)
	}
}

// The sample that `agentgw serve` finds at the root must be sound.
func TestSample(t *testing.T) {
	s := load(t, "../../registry.yaml")
	target, err := s.Services["github"].Actions["create_issue"].Target([]byte(`{"owner":"o","repo":"r","title":"t","labels":["bug"]}`))
	if err != nil || string(target.Body) != `{"title":"t","labels":["bug"]}` || target.URL.Path != "/repos/o/r/issues" {
		t.Errorf("%+v %v", target, err)
	}
	if _, err := s.Effective(registry.Defaults{KeyRPS: 20, KeyBurst: 40, TenantRPS: 100, TenantBurst: 200, TenantMaxInflight: 32}); err != nil {
		t.Error(err)
	}
}

func TestJSONIsYAML(t *testing.T) {
	_, err := registry.Parse("r.json", []byte(`{"version": 1, "services": {"a": {"base_url": "https://u.example", "timeout": "3s", "passthrough": true}}}`))
	if err != nil {
		t.Error(err)
	}
}

func TestLoadErrors(t *testing.T) {
	folder := t.TempDir()
	var lost *fs.PathError
	if _, err := registry.Load(filepath.Join(folder, "none.yaml")); !errors.As(err, &lost) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%T %v", err, err)
	}
	if _, err := registry.Load(folder); err == nil {
		t.Error("a folder was read")
	}
	large := filepath.Join(folder, "large.yaml")
	exact := "version: 1\n#" + strings.Repeat("x", registry.MaxSize-12)
	if err := os.WriteFile(large, []byte(exact), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Load(large); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(large, []byte(exact+"x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Load(large); err == nil || !strings.HasSuffix(err.Error(), "large.yaml:1:1: the file is larger than 1048576 bytes") {
		t.Error(err)
	}
}

// No mistake of a file may show what might be a secret in it.
func TestProblemsShowNoSecret(t *testing.T) {
	for _, name := range []string{"key_itself_as_digest", "url_userinfo", "url_userinfo_no_scheme"} {
		text, err := os.ReadFile("testdata/busted/" + name + ".txt")
		if err != nil || strings.Contains(string(text), "agw_") || strings.Contains(string(text), "s3cr3t") {
			t.Errorf("%s: %s %v", name, text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/busted/*.yaml")
	for _, file := range append(files, "testdata/whole.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := registry.Parse("f", data)
		var problems registry.Problems
		if err != nil && (!errors.As(err, &problems) || len(problems) == 0 || s != nil && s.File != "") {
			t.Fatalf("%T %v", err, err)
		}
		if s != nil { // whole or not, it can be asked for its limits
			_, _ = s.Effective(registry.Defaults{KeyRPS: 20, KeyBurst: 40, TenantRPS: 100, TenantBurst: 200})
		}
		for _, p := range problems {
			if p.File != "f" || p.Line < 1 || p.Column < 1 || p.Path == "" || p.What == "" {
				t.Fatalf("%+v", p)
			}
		}
	})
}
