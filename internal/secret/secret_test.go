package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"agentgw/internal/secret"
)

type holder struct {
	Open   secret.Text
	hidden secret.Text
}

func TestNothingPrintsIt(t *testing.T) {
	const canary = "canary-7d1f"
	s := secret.New(canary)
	h := holder{Open: s, hidden: s}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		for _, v := range []any{s, &s, h, &h, []secret.Text{s}, map[string]secret.Text{"k": s}, fmt.Errorf("wrap %v", s)} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	for _, v := range []any{s, h, map[string]any{"s": s}} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "s", s, "h", h)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "s", s, "h", h)
	for _, needle := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary)} {
		if strings.Contains(out.String(), needle) {
			t.Errorf("the secret was printed as %q", needle)
		}
	}
}

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"abc", "abc", true}, {"abc", "abd", false}, {"abc", "ab", false},
		{"abc", "", false}, {"", "", false}, {"", "abc", false},
	} {
		if got := secret.New(c.a).Equal(c.b); got != c.want {
			t.Errorf("New(%q).Equal(%q) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
	if (secret.Text{}).Equal("") {
		t.Error("the zero secret equals the empty string")
	}
}
