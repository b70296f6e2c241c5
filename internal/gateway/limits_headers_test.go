package gateway_test

import (
	"context"
	"testing"
)

// TestOneKeyInAnyHeader: a key has one bucket, and one tenant, in whichever header
// it is sent; a second header does not give it a second.
func TestOneKeyInAnyHeader(t *testing.T) {
	w := newWorld(t, hello, of("wide", limited("k", 0.01, 6)))
	send := func(name, value string) told {
		r := w.request(context.Background(), "", plainCall("tools", ""))
		r.Header.Set(name, value)
		return w.do(r)
	}
	headers := map[string]string{
		"Authorization": "Bearer " + w.keys["k"], "authorization": "bearer " + w.keys["k"],
		"X-Api-Key": w.keys["k"], "Agentgate-Key": w.keys["k"],
	}
	left := int64(6)
	for range 2 {
		for name, value := range headers {
			got := send(name, value)
			if left == 0 {
				got.want(t, name, 429, "rate_limited", "key")
				continue
			}
			left--
			got.want(t, name, 200, "", "")
			if n := got.left(t)["key"]; n != left {
				t.Errorf("%s: the key has %d left, want %d", name, n, left)
			}
		}
	}
	both := w.request(context.Background(), "k", plainCall("tools", ""))
	both.Header.Set("X-Api-Key", w.keys["k"])
	w.do(both).want(t, "the same key twice", 429, "rate_limited", "key")
}
