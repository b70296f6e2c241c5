package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/drilltest"
	"agentgw/internal/pgtest"
)

// rotating is a token endpoint whose refresh tokens are good once, and which counts who
// shows one again; and a service that takes the newest access token alone.
type rotating struct {
	*httptest.Server
	mu      sync.Mutex
	asked   int    // how often
	reused  int    // how often with a refresh token that it had taken
	refresh string // the one that is good
	life    time.Duration
	came    time.Time // when the newest access token was given
	first   func()    // before the answer to a request, once; it is then given to nobody
}

func newRotating(t *testing.T) *rotating {
	p := &rotating{refresh: "refresh-0", life: 10 * time.Second}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		p.mu.Lock()
		p.asked++
		lost := p.first
		p.first = nil
		good := r.PostForm.Get("refresh_token") == p.refresh
		p.mu.Unlock()
		if lost != nil {
			lost()
			return
		}
		if !good {
			p.mu.Lock()
			p.reused++
			p.mu.Unlock()
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
			return
		}
		time.Sleep(200 * time.Millisecond) // in which all others come
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refresh, p.came = fmt.Sprint("refresh-", p.asked), time.Now()
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprint("access-", p.asked), "refresh_token": p.refresh, "token_type": "bearer", "expires_in": int(p.life.Seconds())})
	})
	mux.HandleFunc("GET /mail", func(http.ResponseWriter, *http.Request) {})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// so has f look at it, or change it.
func (p *rotating) so(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// connectedAt are replicas with an account at p whose token has a second left.
func connectedAt(t *testing.T, n int, p *rotating) *stateful {
	t.Helper()
	s := newStateful(t, n, pgtest.Start(t).Database(t), fmt.Sprintf(`  mail:
    base_url: %[1]s
    allow_private: true
    credential: {type: oauth2, authorize_url: %[1]s/authorize, token_url: %[1]s/token, client_id: gw, client_auth: none, allow_private: true}
    actions: {read: {method: GET, path: /mail}}
`, p.URL))
	s.must("refresh-0", "credentials", "set", "--service", "mail")
	s.must("x\n", "credentials", "set", "--service", "s")
	s.createKey("k")
	eventually(t, "all have the key, and so the account", func() bool { return s.all(200) })
	if status, code := s.call(n-1, "mail", "read"); status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	var first time.Time
	p.so(func() {
		if p.asked != 1 {
			t.Fatalf("the endpoint was asked %d times for the first token", p.asked)
		}
		first = p.came
		p.life = time.Hour
	})
	time.Sleep(time.Until(first.Add(9 * time.Second))) // of a life of ten: nobody has renewed it meanwhile, as nobody calls
	return s
}

// crowdAt has so many callers at once, spread over replicas from the first on, each of
// which calls until it is served, and counts the calls that were not.
func (s *stateful) crowdAt(first, callers int) (again int64) {
	var refused atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if status, _ := s.call(first+i%(len(s.agents)-first), "mail", "read"); status == 200 {
					return
				}
				refused.Add(1)
			}
			s.t.Error("a caller was never served")
		})
	}
	all.Wait()
	return refused.Load()
}

// TestReplicasRenewATokenOnce: 200 callers at three replicas, with a token a second from its end,
// have the token endpoint asked once.
func TestReplicasRenewATokenOnce(t *testing.T) {
	t.Parallel()
	p := newRotating(t)
	s := connectedAt(t, 3, p)
	refused := s.crowdAt(0, 200)
	p.so(func() {
		if p.asked != 2 || p.reused != 0 {
			t.Errorf("the endpoint was asked %d times more, %d times with a token that was spent", p.asked-1, p.reused)
		}
		drilltest.Row(t, "a token of a fleet is renewed", "200 callers at 3 replicas, a second before its end", fmt.Sprintf("the token endpoint was asked %d times; %d calls refused", p.asked-1, refused), "once; none", p.asked == 2 && refused == 0)
	})
}

// TestReplicasRenewATokenOfOneThatDied: the replica that asked is killed before it has the
// answer. The others wait for as long as the claim of the dead one stands, and one asks once more.
func TestReplicasRenewATokenOfOneThatDied(t *testing.T) {
	t.Parallel()
	p := newRotating(t)
	s := connectedAt(t, 3, p)
	dead := make(chan time.Time, 1)
	p.so(func() {
		p.first = func() {
			_ = s.running[0].Process.Kill()
			_, _ = s.running[0].Process.Wait()
			dead <- time.Now()
		}
	})
	go s.call(0, "mail", "read") // whose answer nobody waits for
	killed := <-dead
	refused := s.crowdAt(1, 199)
	waited := time.Since(killed)
	p.so(func() {
		if p.asked != 3 || p.reused != 0 {
			t.Errorf("the endpoint was asked %d times, %d with a token that was spent; want the dead one's and one more", p.asked-1, p.reused)
		}
		drilltest.Row(t, "a token of a fleet is renewed", "kill -9 of the replica that has asked; 199 callers at the other 2",
			fmt.Sprintf("the token endpoint was asked %d times; all served after %v, %d calls refused", p.asked-1, waited.Round(10*time.Millisecond), refused), "once more at most, within 30 s", p.asked <= 3 && waited < 30*time.Second)
	})
}
