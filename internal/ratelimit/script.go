package ratelimit

import (
	"crypto/sha1" // not for secrecy: it is how Redis names a script
	"embed"
	"encoding/hex"
)

// Script is what a store runs in one step. Its first argument is the deadline, which
// the store adds; and so is the first number of what it returns, the store's time in
// microseconds, negative if the script came after the deadline and did nothing.
type Script struct {
	Name string
	Text string
	SHA1 string // of Text, in hexadecimal: what Redis calls it by
}

//go:embed queries/*.lua
var queries embed.FS

var (
	decideScript   = newScript("decide", "bucket", "slots", "window")
	refundScript   = newScript("refund", "bucket", "window")
	lookScript     = newScript("look", "bucket")
	countScript    = newScript("count", "bucket", "window")
	releaseScript  = newScript("release")
	renewScript    = newScript("renew", "bucket", "slots")
	replicasScript = newScript("replicas", "bucket", "slots")
	probeScript    = newScript("probe")
)

// newScript puts a script together of what it begins with and itself. All begin with
// the time.
func newScript(name string, parts ...string) *Script {
	text := ""
	for _, part := range append(append([]string{"clock"}, parts...), name) {
		b, err := queries.ReadFile("queries/" + part + ".lua")
		if err != nil {
			panic(err) // it is in the binary, or the binary was not built
		}
		text += string(b)
	}
	sum := sha1.Sum([]byte(text))
	return &Script{Name: name, Text: text, SHA1: hex.EncodeToString(sum[:])}
}

// Scripts are all that a Shared has its store run.
func Scripts() []*Script {
	return []*Script{decideScript, refundScript, lookScript, countScript, releaseScript, renewScript, replicasScript, probeScript}
}

// Probe is a job that finds out whether a store can be asked.
func Probe() Job { return Job{Script: probeScript, Keys: []string{storePrefix + "{probe}"}} }
