package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"agentgw/internal/freeport"
)

// The stories in testdata/script run the real program: each command is a
// process of its own, with signals, exit codes and files as a user has them.

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"agentgw": main, "call": callMain})
}

func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			upstream := httptest.NewServer(scriptUpstream(e.WorkDir))
			e.Defer(upstream.Close)
			e.Defer(upstream.CloseClientConnections)
			registry := fmt.Sprintf(scriptRegistry, upstream.URL)
			if err := os.WriteFile(filepath.Join(e.WorkDir, "registry.yaml"), []byte(registry), 0o600); err != nil {
				return err
			}
			for _, name := range []string{"LISTEN", "ADMIN", "LISTEN2", "ADMIN2"} {
				e.Setenv(name, freeport.Address(t))
			}
			e.Setenv("WIDE", strings.Replace(e.Getenv("ADMIN"), "127.0.0.1", "0.0.0.0", 1)) // ADMIN is a part of it
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":    scriptExits,
			"ready":    scriptReady,
			"replace":  scriptReplace,
			"mode":     scriptMode,
			"until":    scriptUntil,
			"term":     scriptTerm,
			"draining": scriptDraining,
			"jsonkey":  scriptJSONKey,
			"reload":   scriptReload,
			"metric":   scriptMetric,
		},
	})
}

// scriptRegistry is the registry.yaml of every story.
const scriptRegistry = `version: 1
services:
  tools:
    base_url: %s
    allow_private: true
    actions:
      search: {method: GET, path: /search, params: {q: string}}
      ticks: {method: GET, path: /ticks}
      hold: {method: GET, path: /hold}
`

// scriptUpstream answers /search, streams without end on /ticks, and says
// nothing on /hold until the caller is gone. It notes in the file ticked that a
// stream is well under way.
func scriptUpstream(folder string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"q":%q}`, r.URL.Query().Get("q")) })
	mux.HandleFunc("GET /hold", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("GET /ticks", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			if n == 5 {
				_ = os.WriteFile(filepath.Join(folder, "ticked"), []byte("ticked"), 0o600)
			}
			if _, err := io.WriteString(w, "data: tick\n\n"); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
			}
		}
	})
	return mux
}

// callMain is a small curl: call [-cut LINES] ADDRESS KEYFILE BODY. It prints
// status, receipt and body, and hangs up after so many lines of the body.
func callMain() {
	args, cut := os.Args[1:], 0
	if args[0] == "-cut" {
		cut, _ = strconv.Atoi(args[1])
		args = args[2:]
	}
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	key, err := os.ReadFile(args[1])
	fail(err)
	r, err := http.NewRequest("POST", "http://"+args[0]+"/v1/act", strings.NewReader(args[2]))
	fail(err)
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
	res, err := http.DefaultClient.Do(r)
	fail(err)
	fmt.Println(res.Status, res.Header.Get("Agentgate-Receipt"))
	body := bufio.NewReader(res.Body)
	for n := 1; ; n++ {
		line, err := body.ReadString('\n')
		fmt.Print(line)
		if errors.Is(err, io.EOF) || n == cut {
			fmt.Println()
			return
		}
		fail(err)
	}
}

// scriptExits runs a command that is to end with that exit code.
func scriptExits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var ended *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ended) {
		got = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit %d, want %d", got, want)
	}
}

func scriptReady(ts *testscript.TestScript, _ bool, args []string) {
	if !ready(args[0]) {
		ts.Fatalf("%s did not get ready", args[0])
	}
}

// scriptReplace changes one text in a file: replace FILE OLD NEW.
func scriptReplace(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile(args[0])
	if !strings.Contains(text, args[1]) {
		ts.Fatalf("%s does not hold %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(text, args[1], args[2], 1)), 0o600))
}

func scriptMode(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[1] {
		ts.Fatalf("%s has mode %s, want %s", args[0], got, args[1])
	}
}

// scriptUntil waits, bounded, until a file under DATA/receipts holds a text as
// often as that: until FILE N TEXT.
func scriptUntil(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(ts.MkAbs(args[0])); err == nil && strings.Count(string(text), args[2]) >= n {
			return
		}
	}
	ts.Fatalf("%s never held %q %d times", args[0], args[2], n)
}

// scriptTerm sends SIGTERM to the gateway that runs; the kill that scripts have
// knows no such signal.
func scriptTerm(ts *testscript.TestScript, _ bool, _ []string) {
	sent := false
	for _, cmd := range ts.BackgroundCmds() {
		if slices.Contains(cmd.Args, "serve") {
			ts.Check(cmd.Process.Signal(syscall.SIGTERM))
			sent = true
		}
	}
	if !sent {
		ts.Fatalf("no gateway runs")
	}
}

// scriptDraining waits, bounded, until the gateway has heard of its end.
func scriptDraining(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if res, err := http.Get("http://" + args[0] + "/readyz"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusServiceUnavailable {
				return
			}
		}
	}
	ts.Fatalf("%s never drained", args[0])
}

// scriptJSONKey writes the key that keys create --json has printed into a file:
// jsonkey FROM TO.
func scriptJSONKey(ts *testscript.TestScript, _ bool, args []string) {
	var made struct{ Key string }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &made))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(made.Key), 0o600))
}

// scriptReload asks the gateway at $ADMIN to reload: reload STATUS TEXT, which the
// answer is to hold.
func scriptReload(ts *testscript.TestScript, _ bool, args []string) {
	r, err := http.NewRequest("POST", "http://"+ts.Getenv("ADMIN")+"/admin/v1/reload", nil)
	ts.Check(err)
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(ts.ReadFile("data/admin-token")))
	scriptAnswer(ts, r, args[0], args[1])
}

// scriptMetric holds the metrics of the gateway at $ADMIN against a line.
func scriptMetric(ts *testscript.TestScript, _ bool, args []string) {
	r, err := http.NewRequest("GET", "http://"+ts.Getenv("ADMIN")+"/metrics", nil)
	ts.Check(err)
	scriptAnswer(ts, r, "200", "\n"+args[0]+"\n")
}

func scriptAnswer(ts *testscript.TestScript, r *http.Request, status, text string) {
	res, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	ts.Check(err)
	if strconv.Itoa(res.StatusCode) != status || !strings.Contains(string(body), text) {
		ts.Fatalf("%s, want %s with %q: %s", res.Status, status, text, body)
	}
}
