package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// auditor is somebody who follows docs/auditing.md in a folder, word for word.
type auditor struct {
	t      *testing.T
	folder string
	env    []string
	skips  func(line string) bool
	ran    int
}

// block runs the lines of one block, each of which exits as it says there, and
// returns what the last one printed.
func (r *auditor) block(lines string) (printed string) {
	r.t.Helper()
	for line := range strings.Lines(lines) {
		if r.skips(line) {
			continue
		}
		want := 0
		if _, code, ok := strings.Cut(line, "# exit "); ok {
			var err error
			if want, err = strconv.Atoi(code[:1]); err != nil {
				r.t.Fatal(err)
			}
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env = r.folder, r.env
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if cmd.ProcessState == nil {
			r.t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != want {
			r.t.Errorf("%sexits with %d: %s%s", line, got, out, stderr.String())
		}
		printed = string(out)
		r.ran++
	}
	return printed
}

// TestAuditingAsWritten: all commands of docs/auditing.md, in their order, do what
// the page says: who has only an export and a key is in a folder with nothing else,
// and who has the data folder is beside it. What a report shows there it has.
func TestAuditingAsWritten(t *testing.T) {
	page, err := os.ReadFile("../../docs/auditing.md")
	if err != nil {
		t.Fatal(err)
	}
	tools, err := filepath.Abs("../../tools")
	if err != nil {
		t.Fatal(err)
	}
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lacking := map[string]bool{}
	for _, name := range []string{"jq", "openssl", "basenc"} {
		if _, err := exec.LookPath(name); err != nil {
			lacking[name] = true
			t.Logf("a reader of the page has %s: %v", name, err)
		}
	}
	lacking["python3"] = exec.Command("python3", "-c", "import sys; assert sys.version_info >= (3, 9); from cryptography.hazmat.primitives.asymmetric import ed25519").Run() != nil

	b := audited(t)
	b.want(exitDone, "credentials", "set", "--service", "s", "--from-file", "vkey") // which makes a vault key
	const params = `{"q":"9007199254740993"}`
	b.commit("pp", params)
	b.write("params.json", []byte(params))
	var opened openedReceipt
	out, _ := b.want(exitDone, "receipts", "open", "pp", "--json")
	if err := json.Unmarshal([]byte(out), &opened); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	given := t.TempDir()
	b.want(exitDone, "receipts", "export", "--tenant", "acme", "--out", filepath.Join(given, "given.export"))
	b.write(filepath.Join(given, "log.vkey"), b.read("vkey"))
	if err := os.Symlink(filepath.Join(given, "given.export"), filepath.Join(here, "given.export")); err != nil { // to follow the page in one folder
		t.Fatal(err)
	}
	for _, name := range []string{"vkey", "anchor"} { // the page makes them
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{here, given} {
		for name, at := range map[string]string{"agentgw": me, "tools": tools} {
			if err := os.Symlink(at, filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := &auditor{t: t, env: append(os.Environ(), "ID=pp", "SALT="+opened.Salt, "PYTHONDONTWRITEBYTECODE=1"), skips: func(line string) bool {
		if strings.HasPrefix(line, "make ") || strings.HasPrefix(line, "apt-get ") || strings.Contains(line, "--follow") {
			return true // builds, installs, does not end
		}
		for name, is := range lacking {
			if is && regexp.MustCompile(`(^|\| )`+name+` `).MatchString(line) {
				return true
			}
		}
		return lacking["jq"] && strings.Contains(line, "acme.anchor")
	}}
	label := regexp.MustCompile(`(?m)^[a-z][a-z ]+?  `)
	for _, chapter := range strings.Split(string(page), "\n## ") {
		r.folder = here
		if strings.HasPrefix(chapter, "In a minute\n") {
			r.folder = given
		}
		shown := ""
		for _, m := range regexp.MustCompile("(?s)\n```(sh)?\n(.*?)```\n").FindAllStringSubmatch(chapter, -1) {
			if m[1] == "sh" {
				shown = r.block(m[2])
				continue
			}
			if want := label.FindAllString(m[2], -1); shown != "" && !strings.Contains(m[2], "\n...\n") && (strings.HasPrefix(m[2], "verdict") || strings.HasPrefix(m[2], "receipt")) {
				if got := label.FindAllString(shown, -1); strings.Join(want, ",") != strings.Join(got, ",") {
					t.Errorf("it shows\n%s\nand it is\n%s", m[2], shown)
				}
			}
			shown = ""
		}
	}
	t.Logf("%d commands were run; lacking: %v", r.ran, lacking)
	if r.ran < 20 || !bytes.Contains(b.read("refused.export"), []byte(`"left_out"`)) {
		t.Errorf("%d commands of the page were run", r.ran)
	}
	if out, err := exec.Command("sh", "-c", "openssl dgst -sha256 -mac HMAC -macopt hexkey:"+opened.Salt+" -binary params.json | basenc --base64url | tr -d =").Output(); !lacking["openssl"] && !lacking["basenc"] && strings.TrimSpace(string(out)) != opened.Hash {
		t.Errorf("openssl says %s, %v, and the record %s", out, err, opened.Hash)
	}
}
