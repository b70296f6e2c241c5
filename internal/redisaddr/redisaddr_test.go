package redisaddr_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"agentgw/internal/redisaddr"
)

// TestForms: each form of the URL, and what it says.
func TestForms(t *testing.T) {
	for text, want := range map[string]redisaddr.Address{
		"redis://h":                 {Hosts: []string{"h:6379"}},
		"redis://:p%40%2F%3F@h:1/3": {Hosts: []string{"h:1"}, Password: "p@/?", DB: 3},
		"rediss://u:p@[::1]:7":      {Hosts: []string{"[::1]:7"}, User: "u", Password: "p", TLS: true},
		"redis://[fe80::1]":         {Hosts: []string{"[fe80::1]:6379"}},
		"redis://u:a:b@h/":          {Hosts: []string{"h:6379"}, User: "u", Password: "a:b"},
		"redis+sentinel://a,b:1/m":  {Kind: redisaddr.Sentinel, Hosts: []string{"a:26379", "b:1"}, Master: "m"},
		"redis+sentinel://:p@a/m%20/4?sentinel_password=q%26&sentinel_username=s": {
			Kind: redisaddr.Sentinel, Hosts: []string{"a:26379"}, Master: "m ", DB: 4, Password: "p", SentinelUser: "s", SentinelPassword: "q&"},
		"redis+cluster://a:1,b,c:3":  {Kind: redisaddr.Cluster, Hosts: []string{"a:1", "b:6379", "c:3"}},
		"rediss+cluster://:p@a/0":    {Kind: redisaddr.Cluster, Hosts: []string{"a:6379"}, Password: "p", TLS: true},
		"rediss://h?ssl_ca_certs=/c": {Hosts: []string{"h:6379"}, TLS: true, CAFile: "/c"},
		"rediss+sentinel://h/m?ssl_certfile=c&ssl_keyfile=k": {
			Kind: redisaddr.Sentinel, Hosts: []string{"h:26379"}, Master: "m", TLS: true, CertFile: "c", KeyFile: "k"},
	} {
		got, err := redisaddr.Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// TestMistakes: what is wrong with a URL is said, and nothing of what it holds.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                              "is not redis://",
		"s3cr3t@h:6379":                                 "is not redis://",
		"http://:s3cr3t@h":                              "is not redis://",
		"redis+://:s3cr3t@h":                            "is not redis://",
		"redis+s3cr3t://h":                              "is not redis://",
		"redis://s3cr3t@h":                              "a user and no password",
		"redis://:s3cr3t#@h":                            "%23",
		"redis://:s3cr3t/x@h":                           "%2F",
		"redis://:s3cr3t?x@h":                           "%2F",
		"redis://:s3cr3t%@h":                            "%25",
		"redis://":                                      "names no host",
		"redis://:s3cr3t@":                              "names no host",
		"redis://:s3cr3t@h:99999":                       "between 1 and 65535",
		"redis://:s3cr3t@h:0":                           "between 1 and 65535",
		"redis://:s3cr3t@h:1:2":                         "host:port",
		"redis://:s3cr3t@a,b":                           "several hosts",
		"redis://:s3cr3t@h/s3cr3t":                      "no number of a database",
		"redis://:s3cr3t@h/-1":                          "no number of a database",
		"redis+cluster://:s3cr3t@h/1":                   "a Cluster has none but 0",
		"redis+sentinel://:s3cr3t@h":                    "which master",
		"redis+sentinel://:s3cr3t@h//1":                 "which master",
		"redis+sentinel://:s3cr3t@h/m/s3cr3t":           "no number of a database",
		"redis://:s3cr3t@h?s3cr3t=1":                    "parameter that is unknown",
		"redis://:s3cr3t@h?sentinel_password=s3cr3t":    "parameter that is unknown",
		"redis://h?ssl_ca_certs=/c":                     "begin it with rediss",
		"rediss://h?ssl_certfile=/c":                    "both ssl_certfile and ssl_keyfile",
		"rediss://h?ssl_ca_certs=":                      "twice, or empty",
		"redis://h?%zz":                                 "cannot be read",
		"redis+sentinel://h/m?sentinel_username=s3cr3t": "no sentinel_password",
	} {
		_, err := redisaddr.Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// TestFiles: a file that is not there, or not what it should be, is named.
func TestFiles(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for a, want := range map[redisaddrKey]string{
		{ca: "/nowhere"}: "ssl_ca_certs: open /nowhere", {ca: empty}: "holds no certificate", {cert: empty}: "ssl_certfile, ssl_keyfile: ",
	} {
		c, err := (&redisaddr.Address{TLS: true, CAFile: a.ca, CertFile: a.cert, KeyFile: a.cert}).Config()
		if c != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	if c, err := (&redisaddr.Address{CAFile: "/nowhere"}).Config(); c != nil || err != nil {
		t.Error("without TLS:", err)
	}
}

type redisaddrKey struct{ ca, cert string }
