package main

import (
	"strings"
	"testing"

	"agentgw/internal/config"
)

// TestMistakesInTheCommandLine: what is wrong is said with what to do, and no
// argument is repeated: it may be a secret that was put in the wrong place.
func TestMistakesInTheCommandLine(t *testing.T) {
	b := newBench(t, stateRegistry)
	for _, c := range []struct{ args, says string }{
		{"serve canary.yaml", "agentgw serve takes no argument: name the registry with --registry FILE"},
		{"credentials set --service search canary", "agentgw credentials set takes no argument: the secret comes from standard input or --from-file"},
		{"credentials set --service search -canary", "unknown shorthand flag: 'c'"},
		{"credentials canary", "there is no such command; agentgw credentials --help lists those that there are"},
		{"credentials list canary", "agentgw credentials list takes no argument: agentgw credentials list --help lists the flags"},
		{"canary", "there is no such command; agentgw --help lists those that there are"},
		{"chek", "there is no such command; did you mean agentgw check?"},
		{"keys creat", "there is no such command; did you mean agentgw keys create?"},
		{"receipts verfy", "there is no such command; did you mean agentgw receipts verify?"},
		{"completion", "agentgw completion wants one of bash, zsh, fish, powershell"},
		{"completion canary", "agentgw completion wants one of bash, zsh, fish, powershell"},
		{"help canary", "there is no such command; agentgw --help lists those that there are"},
		{"help keys canary", "there is no such command; agentgw keys --help lists those that there are"},
		{"help keys creat", "there is no such command; did you mean agentgw keys create?"},
		{"serve --rate-key-rps fast", "flag: --rate-key-rps: \"fast\" is not a plain decimal"},
		{"keys list --rate-key-rps=", "flag: --rate-key-rps: is empty"},
		{"serve --registry=", "flag: --registry: is empty"},
		{"serve --json --log-format json", "--json is --log-format json"},
		{"keys revoke", "ID is missing: agentgw keys revoke ID"},
		{"keys revoke canary canary", "2 arguments where one ID is wanted: agentgw keys revoke ID"},
		{"receipts show", "ID is missing: agentgw receipts show ID"},
		{"receipts verify", "PATH is missing: agentgw receipts verify PATH... --vkey FILE..."},
		{"check canary canary", "2 arguments where at most one FILE is wanted: agentgw check [FILE]"},
	} {
		stdout, stderr := b.want(exitUsage, strings.Split(c.args, " ")...)
		if !strings.HasPrefix(stderr, "agentgw: "+c.says) || strings.Contains(stderr, "canary") || strings.Contains(stderr, "arg(s)") || stdout != "" {
			t.Errorf("%s: it says %q and %q, without %q", c.args, stdout, stderr, c.says)
		}
	}
}

func TestVersionIsAFlagToo(t *testing.T) {
	b := newBench(t, "")
	command, _ := b.want(exitDone, "version")
	if flag, _ := b.want(exitDone, "--version"); flag != command || !strings.HasPrefix(flag, "agentgw ") {
		t.Errorf("%q and %q", flag, command)
	}
}

// TestHelpTellsOfTheCommand: its own flags first, and of the settings those
// alone that say where it works. All of them work.
func TestHelpTellsOfTheCommand(t *testing.T) {
	b := newBench(t, "")
	for command, own := range map[string]string{
		"keys create": "--id", "keys list": "--json", "keys rotate": "--grace", "keys revoke": "--json", "credentials set": "--from-file", "credentials list": "--json", "credentials remove": "--service",
		"receipts list": "--tenant", "receipts show": "--json", "receipts prove": "--all", "receipts export": "--until", "receipts tail": "--follow", "receipts key": "--json", "receipts rotate-key": "--json", "receipts checkpoint": "--json",
	} {
		help, _ := b.want(exitDone, append(strings.Split(command, " "), "--help")...)
		_, flags, _ := strings.Cut(help, "\nFlags:\n")
		at := func(flag string) int { return strings.Index(flags, flag+" ") }
		if at(own) < 0 || at("--registry") < at(own) || at("--data-dir") < at(own) || at("--data") < 0 {
			t.Errorf("%s --help:\n%s", command, help)
		}
		for _, row := range config.Table() {
			if shown := at(row.Flag) >= 0; shown != (row.Flag == "--registry" || row.Flag == "--data-dir") {
				t.Errorf("%s --help tells of %s: %v", command, row.Flag, shown)
			}
		}
	}
	b.store()
	b.want(exitDone, "keys", "list", "--rate-key-rps", "7") // hidden, and still taken
	help, _ := b.want(exitDone, "check", "--help")
	if json := strings.Index(help, "--json"); json < 0 || json > strings.Index(help, "--listen") || !strings.Contains(help, "--drain-timeout") {
		t.Errorf("check --help:\n%s", help)
	}
}

// TestServeWithoutARegistry: somebody who has none yet is told what it is.
func TestServeWithoutARegistry(t *testing.T) {
	b := newBench(t, "")
	for _, command := range []string{"serve", "check"} {
		_, stderr := b.want(exitCannotRun, command)
		for _, want := range []string{"registry.yaml: no such file", "which services are served", "--registry FILE", "AGENTGATE_REGISTRY", "agentgw demo"} {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: no %q in %s", command, want, stderr)
			}
		}
		if _, stderr := b.want(exitCannotRun, command, "--registry", "other.yaml"); stderr != "agentgw: open other.yaml: no such file or directory\n" {
			t.Errorf("%s of one that was named: %s", command, stderr)
		}
	}
}

// TestAGroupIsNoCommand: its help is where errors are, and the exit code says
// that nothing was done. The program's own name alone asks for help.
func TestAGroupIsNoCommand(t *testing.T) {
	b := newBench(t, "")
	for _, group := range []string{"keys", "credentials", "receipts"} {
		if stdout, stderr := b.want(exitUsage, group); stdout != "" || !strings.Contains(stderr, "agentgw "+group+" [command]") {
			t.Errorf("%s: %q and %q", group, stdout, stderr)
		}
		if help, stderr := b.want(exitDone, group, "--help"); stderr != "" || !strings.Contains(help, "agentgw "+group+" [command]") {
			t.Errorf("%s --help: %q and %q", group, help, stderr)
		}
	}
	bare, _ := b.want(exitDone)
	if help, _ := b.want(exitDone, "help"); help != bare || !strings.Contains(help, "  completion ") {
		t.Errorf("help is\n%s", help)
	}
	if help, _ := b.want(exitDone, "help", "keys", "create"); !strings.Contains(help, "--services") {
		t.Errorf("help keys create is\n%s", help)
	}
}

// TestWhoseMistakeASettingIs: a flag's value is the command line's, all else is not.
func TestWhoseMistakeASettingIs(t *testing.T) {
	b := newBench(t, "server: {stream_idle: 30}\n")
	b.want(exitCannotRun, "serve")
	b.want(exitUsage, "serve", "--stream-idle", "30")
	b.want(exitCannotRun, "serve", "--vault-key-file", "none")
	b.env = []string{"AGENTGATE_STREAM_IDLE=30"}
	b.want(exitCannotRun, "keys", "list")
}
