package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/internal/freeport"
)

// Watched is a master with a replica, and three Sentinels that watch them by the name of
// "main".
type Watched struct {
	Servers   [2]*Server // the first is the master to begin with
	Sentinels []*Server
}

// StartWatched starts them, as Start does. The Sentinels ask for the password "watch".
func StartWatched(t testing.TB, args ...string) *Watched {
	t.Helper()
	w := &Watched{}
	for i := range w.Servers {
		w.Servers[i] = Start(t, append([]string{"--repl-diskless-sync-delay", "0"}, args...)...)
	}
	host, port, _ := net.SplitHostPort(w.Servers[0].Addr)
	w.Servers[1].Do("REPLICAOF", host, port)
	wait(t, "the replica follows", func() bool {
		return strings.Contains(w.Servers[1].Do("INFO", "replication"), "master_link_status:up")
	})
	for range 3 {
		own := freeport.Port(t)
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %q\nrequirepass watch\nsentinel sentinel-pass watch\nsentinel monitor main %s %s 2\n"+
			"sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 6000\n", own, filepath.Dir(file), host, port)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Server{t: t, bin: binary(), Addr: "127.0.0.1:" + own, args: []string{file, "--sentinel"}, password: "watch"}
		s.Again()
		t.Cleanup(s.Stop)
		w.Sentinels = append(w.Sentinels, s)
	}
	for _, s := range w.Sentinels {
		wait(t, "the Sentinels know of each other", func() bool {
			return strings.Contains(s.Do("SENTINEL", "CKQUORUM", "main"), "OK 3 usable") && strings.Contains(s.Do("SENTINEL", "REPLICAS", "main"), "master-link-status\r\n$2\r\nok")
		})
	}
	return w
}

// URL is where the Sentinels are.
func (w *Watched) URL() string {
	var hosts []string
	for _, s := range w.Sentinels {
		hosts = append(hosts, s.Addr)
	}
	return "redis+sentinel://" + strings.Join(hosts, ",") + "/main?sentinel_password=watch"
}

// Master is who the Sentinels say is the master.
func (w *Watched) Master() *Server {
	reply := keysOf(w.Sentinels[0].Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"))
	for _, s := range w.Servers {
		if len(reply) == 2 && net.JoinHostPort(reply[0], reply[1]) == s.Addr {
			return s
		}
	}
	return nil
}
