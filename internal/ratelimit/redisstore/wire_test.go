package redisstore

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"agentgw/internal/ratelimit"
)

// TestRepliesAreRead: each of many that follow each other, whole or in pieces, also one
// that is longer than what is read at once.
func TestRepliesAreRead(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		wire, first, err string
		others           []string
	}{
		{wire: "*1\r\n$2\r\n\r\n\r\n", first: "\r\n"},
		{wire: "*3\r\n$3\r\nabc\r\n$0\r\n\r\n$100\r\n" + long + "\r\n", first: "abc", others: []string{"", long}},
		{wire: "*2\r\n$100\r\n" + long + "\r\n$1\r\ny\r\n", first: long, others: []string{"y"}},
		{wire: "$100\r\n" + long + "\r\n", first: long},
		{wire: "$-1\r\n"}, {wire: "*0\r\n"}, {wire: "*-1\r\n"},
		{wire: "-NOSCRIPT none\r\n", err: "NOSCRIPT none"},
		{wire: "+OK\r\n", first: "OK"},
		{wire: ":17\r\n", first: "17"},
	} {
		for name, in := range map[string]io.Reader{"whole": strings.NewReader(c.wire + "+next\r\n"), "in pieces": iotest.OneByteReader(strings.NewReader(c.wire + "+next\r\n"))} {
			r := &replies{Reader: bufio.NewReaderSize(in, 32)}
			first, others, err, broken := r.read()
			said := ""
			if err != nil {
				said = err.Error()
			}
			if broken != nil || string(first) != c.first || !slices.Equal(others, c.others) || said != c.err {
				t.Errorf("%q, %s: %q, %q, %v, %v", c.wire, name, first, others, err, broken)
			}
			if next, _, _, broken := r.read(); string(next) != "next" || broken != nil {
				t.Errorf("%q, %s: then %q, %v", c.wire, name, next, broken)
			}
		}
	}
}

// TestAnUnknownReplyEndsTheConnection, as nobody knows where the next begins.
func TestAnUnknownReplyEndsTheConnection(t *testing.T) {
	for _, wire := range []string{"$x\r\n", "$-2\r\n", "*1\r\n:1\r\n", "*1\r\n*1\r\n$1\r\nx\r\n", "\r\n", "+\n", "$" + strconv.Itoa(longestReply+1) + "\r\n", "*99999999999999999999\r\n", strings.Repeat("+", 100)} {
		r := &replies{Reader: bufio.NewReaderSize(strings.NewReader(wire+strings.Repeat("x", 64)), 32)}
		if first, _, _, broken := r.read(); broken == nil {
			t.Errorf("%q: %q", wire, first)
		}
	}
	for _, wire := range []string{"", "$5\r\nabc", "*2\r\n$1\r\na\r\n", "+OK"} {
		r := &replies{Reader: bufio.NewReaderSize(strings.NewReader(wire), 32)}
		if first, _, _, broken := r.read(); !errors.Is(broken, io.EOF) && !errors.Is(broken, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %q, %v", wire, first, broken)
		}
	}
}

// TestEachJobHasItsPart of a reply, or the error of all from where it makes no sense.
func TestEachJobHasItsPart(t *testing.T) {
	numbers := func(list ...int64) (b []byte) {
		for _, n := range list {
			b = appendNumber(b, n)
		}
		return b
	}
	other := errors.New("other")
	for _, c := range []struct {
		numbers []byte
		others  []string
		err     error
		want    []string
	}{
		{numbers(2, 10, 11, -1, 1, 1<<53-1), []string{"WRONGTYPE x"}, nil, []string{"[10 11]", "WRONGTYPE x", "[9007199254740991]"}},
		{numbers(1, -7, -1, 1, 12), nil, nil, []string{"[-7]", errReply.Error(), errReply.Error()}},
		{numbers(1, 1), nil, nil, []string{"[1]", errReply.Error(), errReply.Error()}},
		{numbers(1, 1, 1<<40, 3), nil, nil, []string{"[1]", errReply.Error(), errReply.Error()}},
		{numbers(1, 1, 0, 3), nil, nil, []string{"[1]", errReply.Error(), errReply.Error()}},
		{nil, nil, other, []string{"other", "other", "other"}},
	} {
		jobs := []*job{{}, {}, {}}
		divide(jobs, c.numbers, c.others, c.err)
		for i, j := range jobs {
			got := fmtValues(j)
			if got != c.want[i] {
				t.Errorf("%v: job %d: %s, want %s", c.numbers, i, got, c.want[i])
			}
		}
	}
}

func fmtValues(j *job) string {
	if j.err != nil {
		return j.err.Error()
	}
	var texts []string
	for _, v := range j.values {
		texts = append(texts, strconv.FormatInt(v, 10))
	}
	return "[" + strings.Join(texts, " ") + "]"
}

// TestCommandsAsRedisReadsThem.
func TestCommandsAsRedisReadsThem(t *testing.T) {
	jobs := []*job{
		{Job: ratelimit.Job{Script: ratelimit.Probe().Script, Keys: []string{"a", ""}, Texts: []string{"x"}}},
		{Job: ratelimit.Job{Script: ratelimit.Probe().Script, Keys: []string{"b"}, Numbers: []int64{0}}, again: true},
	}
	wire := appendCommand(nil, "sum", jobs, func(j *job) int64 { return 0 })
	numbers := strings.Repeat("\x00", 0)
	for _, n := range []int64{jobs[0].Script.Number, 2, 0, 1, 0, jobs[1].Script.Number, 1, 1, 0, 0, 0} {
		numbers += string(appendNumber(nil, n))
	}
	want := "*8\r\n$7\r\nEVALSHA\r\n$3\r\nsum\r\n$1\r\n3\r\n$1\r\na\r\n$0\r\n\r\n$1\r\nb\r\n$88\r\n" + numbers + "\r\n$1\r\nx\r\n"
	if string(wire) != want {
		t.Errorf("%q, want %q", wire, want)
	}
}
