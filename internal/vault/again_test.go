package vault_test

import (
	"net/url"
	"os"
	"os/exec"
	"testing"
)

// again is this test once more, in a process of its own that can be killed.
func again(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), env...)
	return c
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
