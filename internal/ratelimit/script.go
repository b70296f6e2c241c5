package ratelimit

import (
	"crypto/sha1" // not for secrecy: it is how Redis names a script
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
)

// Script is one of the things that a store can be asked to do in one step. What it
// returns are integers; the first is the store's time in microseconds.
type Script struct {
	Name string
	// Number is that of the script among those that the Program runs.
	Number int64
}

//go:embed queries/*.lua
var queries embed.FS

var (
	scripts []*Script // in the order of their numbers

	decideScript   = newScript("decide")
	refundScript   = newScript("refund")
	lookScript     = newScript("look")
	countScript    = newScript("count")
	releaseScript  = newScript("release")
	renewScript    = newScript("renew")
	replicasScript = newScript("replicas")
	probeScript    = newScript("probe")
	lendScript     = newScript("lend")
	repayScript    = newScript("repay")
	waitScript     = newScript("wait")
)

func newScript(name string) *Script {
	s := &Script{Name: name, Number: int64(len(scripts) + 1)}
	scripts = append(scripts, s)
	return s
}

// Program is all scripts, as the one that Redis is given. It runs many jobs at once: what
// it takes to begin with a script is of the order of what it takes to decide a call.
type Program struct {
	Text string
	SHA1 string // of Text, in hexadecimal: what Redis calls it by
}

// NewProgram is the one that a Shared has its store run, with a text before it, which is
// for tests. How it is given jobs and how it replies queries/run.lua says.
func NewProgram(before string) Program {
	var text strings.Builder
	text.WriteString(before)
	for _, part := range []string{"args", "clock", "memory", "bucket", "waits", "slots", "window"} {
		text.WriteString(query(part))
	}
	// They are one function: to make one of each, with all that it refers to, takes longer
	// than to find out which it is.
	text.WriteString("local function run(job)\n")
	for i, s := range scripts {
		word := "elseif"
		if i == 0 {
			word = "if"
		}
		fmt.Fprintf(&text, "%s job == %d then\n%s", word, s.Number, query(s.Name))
	}
	text.WriteString("end\nend\n")
	text.WriteString(query("run"))
	sum := sha1.Sum([]byte(text.String()))
	return Program{Text: text.String(), SHA1: hex.EncodeToString(sum[:])}
}

func query(name string) string {
	b, err := queries.ReadFile("queries/" + name + ".lua")
	if err != nil {
		panic(err) // it is in the binary, or the binary was not built
	}
	return string(b)
}

// Probe is a job that finds out whether a store can be asked.
func Probe() Job { return ProbeOf("probe") }

// ProbeOf is a Probe of the part of a store that a tag leads to.
func ProbeOf(tag string) Job {
	return Job{Script: probeScript, Keys: []string{storePrefix + "{" + tag + "}:probe"}}
}
