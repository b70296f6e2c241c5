package main

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryCommandSpeaksJSON runs every command that there is with --json: each
// prints JSON and nothing else.
func TestEveryCommandSpeaksJSON(t *testing.T) {
	b := audited(t)
	lines := map[string]string{
		"check": "check registry.yaml", "completion": "completion fish", "help": "help keys", "version": "version",
		"explain":     "explain --key made --service search --action web",
		"keys create": "keys create --id made --services * --users *", "keys list": "keys list", "keys rotate": "keys rotate made", "keys revoke": "keys revoke made",
		"delegations issue": "delegations issue --user alice --agent static --grant github.* --depth 1 --cnf holder", "delegations inspect": "delegations inspect",
		"delegations narrow": "delegations narrow --key holder --agent worker", "delegations revoke": "delegations revoke --user alice", "delegations rotate": "delegations rotate",
		"credentials set": "credentials set --service search --from-file secret", "credentials list": "credentials list",
		"credentials remove": "credentials remove --service search", "credentials link": "credentials link --service mail", "credentials rewrap": "credentials rewrap",
		"receipts list": "receipts list", "receipts show": "receipts show aa", "receipts prove": "receipts prove aa", "receipts export": "receipts export --tenant acme --out exported", "receipts open": "receipts open pp", "receipts shred": "receipts shred --tenant acme --yes", "receipts tail": "receipts tail", "receipts key": "receipts key", "receipts rotate-key": "receipts rotate-key",
		"receipts checkpoint": "receipts checkpoint", "receipts verify": "receipts verify data --vkey vkey --anchor anchor",
		"health": "",             // in a test of its own: it asks a gateway that runs
		"serve":  "", "demo": "", // below: they run until they are told to stop
	}
	b.write("registry.yaml", []byte(stateRegistry))
	b.write("secret", []byte("user:password"))
	// In this order, since some make what others work on.
	order := []string{"check", "completion", "help", "version", "keys create", "explain", "keys list", "keys rotate", "keys revoke", "delegations issue", "delegations inspect", "delegations narrow", "delegations revoke", "delegations rotate", "credentials set", "credentials list",
		"credentials link", "credentials rewrap", "credentials remove", "receipts list", "receipts show", "receipts prove", "receipts export", "receipts open", "receipts shred", "receipts tail", "receipts key", "receipts checkpoint", "receipts verify", "receipts rotate-key", "demo", "health", "serve"}
	var there []string
	var walk func(cmd *cobra.Command, path string)
	walk = func(cmd *cobra.Command, path string) {
		for _, sub := range cmd.Commands() {
			walk(sub, strings.TrimSpace(path+" "+sub.Name()))
		}
		if !cmd.HasSubCommands() {
			there = append(there, path)
		}
	}
	c := &cli{}
	root := c.rootCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	walk(root, "")
	slices.Sort(there)
	tried := slices.Sorted(slices.Values(order))
	if !slices.Equal(there, tried) {
		t.Fatalf("the commands are %q, and %q are tried", there, tried)
	}
	b.write("holder", []byte(holderJWK))
	said := ""
	for _, name := range order {
		if lines[name] == "" {
			continue
		}
		if name == "receipts open" {
			b.commit("pp", `{"q":1}`)
		}
		var last struct{ Token string } // of what was printed last
		if strings.HasPrefix(name, "delegations ") {
			_ = json.Unmarshal([]byte(said), &last)
		}
		code, stdout, stderr := b.run(last.Token, append(strings.Split(lines[name], " "), "--json")...)
		if code != exitDone {
			t.Fatalf("%s: exit code %d: %s%s", name, code, stdout, stderr)
		}
		if name != "delegations inspect" {
			said = stdout
		}
		isJSON(t, name, stdout)
		if name == "completion" && !strings.Contains(stdout, "complete -c agentgw") || name == "help" && !strings.Contains(stdout, "revoke") {
			t.Errorf("%s: %s%s", name, stdout, stderr)
		}
	}

	out := b.untilItSays(`"verify":`, "demo", "--json", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	isJSON(t, "demo", out.stdout)
	var d demonstration
	if err := json.Unmarshal([]byte(out.stdout), &d); err != nil || !strings.Contains(d.Allowed, "http://"+d.Agents+"/v1/act") ||
		!strings.Contains(d.Stream, "ticks") || !strings.Contains(d.Refused, "payroll") || len(d.Verify) != 2 || !strings.Contains(d.Verify[1], d.Data) || !strings.HasPrefix(d.Key, "agw_") {
		t.Errorf("%v %+v", err, d)
	}
	out = b.untilItSays(`"msg":"serving"`, "serve", "--json", "--registry", "registry.yaml", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	for line := range strings.Lines(out.stderr) {
		if !strings.HasPrefix(line, "agentgw: ") { // warnings, and where the first key is
			isJSON(t, "serve", line)
		}
	}
}

// isJSON says that a text is one JSON value or several, and not none.
func isJSON(t *testing.T, name, text string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	n := 0
	for ; ; n++ {
		var v any
		if err := d.Decode(&v); err == io.EOF {
			break
		} else if err != nil {
			t.Errorf("%s prints %q: %v", name, text, err)
			return
		}
	}
	if n == 0 {
		t.Errorf("%s prints nothing", name)
	}
}

type said struct{ stdout, stderr string }

// untilItSays runs a command that runs until it is told to stop, and stops it
// once it has printed that.
func (b *bench) untilItSays(what string, args ...string) said {
	b.t.Helper()
	var out, errs lockedBuffer
	ended := make(chan int, 1)
	c := &cli{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, environ: b.env}
	go func() { ended <- c.run(args) }()
	eventually(b.t, what, func() bool { return strings.Contains(out.String()+errs.String(), what) })
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		b.t.Fatal(err)
	}
	if code := <-ended; code != exitDone {
		b.t.Errorf("%q: exit code %d: %s", args, code, errs.String())
	}
	return said{out.String(), errs.String()}
}
