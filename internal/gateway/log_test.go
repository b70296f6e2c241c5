package gateway_test

import (
	"strings"
	"testing"
)

// TestFailingServiceIsLogged: a service that fails is to be seen in the log,
// with fields to search by; what is the caller's own doing is not.
func TestFailingServiceIsLogged(t *testing.T) {
	w := newWorld(t, hello, everything("k"))
	w.act("k", `{"service":"guarded","action":"get","params":{"id":"1"}}`)
	w.act("k", `{"service":"keyed","action":"get","params":{"id":"1"}}`)
	quiet := w.logged.String()
	w.act("k", `{"service":"nowhere","action":"get"}`)
	w.act("k", `{`)
	if w.logged.String() != quiet {
		t.Errorf("a caller's mistakes are logged:\n%s", w.logged.String())
	}
	for _, want := range []string{
		"level=WARN msg=refused code=upstream_unreachable service=guarded key=k request=",
		"level=WARN msg=refused code=credential_missing service=keyed key=k request=",
	} {
		if !strings.Contains(quiet, want) {
			t.Errorf("no %q in\n%s", want, quiet)
		}
	}
}
