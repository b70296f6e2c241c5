package redisstore

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strconv"
)

// What goes over the wire is written and read here, and not by go-redis: its commands are
// made for any reply, and cost more than what Redis does to decide.

// said is what Redis replied to a command.
type said string

func (s said) Error() string { return string(s) }

// RedisError has it be sorted as go-redis' own are.
func (said) RedisError() {}

// ofJob is what it replied to one job of many, as it would have to that job alone.
type ofJob struct{ said }

var errReply = errors.New("the reply is not one of the program")

// appendCommand adds the command that has the jobs run at once. A deadline is in
// microseconds by the server's clock, 0 for none. See ratelimit's queries/run.lua.
func appendCommand(to []byte, sha1 string, jobs []*job, deadline func(*job) int64) []byte {
	keys, numbers, texts := 0, 0, 0
	for _, j := range jobs {
		keys, numbers, texts = keys+len(j.Keys), numbers+5+len(j.Numbers), texts+len(j.Texts)
	}
	to = appendCount(to, '*', 4+keys+texts)
	to = appendText(to, "EVALSHA")
	to = appendText(to, sha1)
	to = appendText(to, strconv.Itoa(keys))
	for _, j := range jobs {
		for _, key := range j.Keys {
			to = appendText(to, key)
		}
	}
	to = appendCount(to, '$', 8*numbers)
	for _, j := range jobs {
		for _, n := range [5]int64{j.Script.Number, int64(len(j.Keys)), int64(len(j.Numbers)), int64(len(j.Texts)), deadline(j)} {
			to = appendNumber(to, n)
		}
		for _, n := range j.Numbers {
			to = appendNumber(to, n)
		}
	}
	to = append(to, "\r\n"...)
	for _, j := range jobs {
		for _, text := range j.Texts {
			to = appendText(to, text)
		}
	}
	return to
}

// appendWords adds a command of words.
func appendWords(to []byte, words ...string) []byte {
	to = appendCount(to, '*', len(words))
	for _, w := range words {
		to = appendText(to, w)
	}
	return to
}

func appendText(to []byte, text string) []byte {
	to = appendCount(to, '$', len(text))
	to = append(to, text...)
	return append(to, "\r\n"...)
}

func appendCount(to []byte, sign byte, n int) []byte {
	to = strconv.AppendInt(append(to, sign), int64(n), 10)
	return append(to, "\r\n"...)
}

// appendNumber adds an integer below 2^53 as Lua has it: as a double.
func appendNumber(to []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(to, math.Float64bits(float64(n)))
}

// replies are those of one connection, in the order of its commands.
type replies struct {
	*bufio.Reader
	text []byte // the last, if it was too long for the buffer
}

const longestReply = 1 << 26

// read returns the reply to one command: the texts of a list, or, of what is no list, its
// one; an error that Redis said; or none, if it is something else. The first of the texts
// is there until the next is read. broken is what ends the connection.
func (r *replies) read() (first []byte, others []string, err, broken error) {
	sign, text, n, broken := r.head()
	if broken != nil {
		return nil, nil, nil, broken
	}
	switch sign {
	case '$':
		first, broken = r.take(n)
		return first, nil, nil, broken
	case '-':
		return nil, nil, said(text), nil
	case '*':
	default:
		return text, nil, nil, nil
	}
	for i := range n {
		sign, text, n, broken := r.head()
		if broken == nil && sign == '$' {
			text, broken = r.take(n)
		} else if broken == nil {
			broken = errReply
		}
		if broken != nil {
			return nil, nil, nil, broken
		}
		switch {
		case i > 0:
			others = append(others, string(text))
		case n > 1: // what follows overwrites the buffer
			first = bytes.Clone(text)
		default:
			first = text
		}
	}
	return first, others, nil, nil
}

// head reads the first line of a reply. n is how long what follows is, where it says so.
func (r *replies) head() (sign byte, text []byte, n int, broken error) {
	line, broken := r.ReadSlice('\n')
	if broken != nil {
		return 0, nil, 0, broken
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, nil, 0, errReply
	}
	sign, text = line[0], line[1:len(line)-2]
	if sign == '$' || sign == '*' {
		if n, broken = strconv.Atoi(string(text)); broken != nil || n < -1 || n > longestReply {
			return 0, nil, 0, errReply
		}
	}
	return sign, text, n, nil
}

// take reads a text of so many bytes, and the end of its line.
func (r *replies) take(n int) ([]byte, error) {
	if n < 0 {
		return nil, nil
	}
	if n+2 <= r.Size() {
		text, err := r.Peek(n + 2)
		if err != nil {
			return nil, err
		}
		_, err = r.Discard(n + 2) // it stays in the buffer
		return text[:n], err
	}
	r.text = append(r.text[:0], make([]byte, n+2)...)
	_, err := io.ReadFull(r, r.text)
	return r.text[:n], err
}

// divide hands each of the jobs its part of the reply to their command. What is wrong with
// all of it is every one's error.
func divide(jobs []*job, numbers []byte, others []string, err error) {
	all := make([]int64, 0, len(numbers)/8) // of which each job has its part
	for _, j := range jobs {
		j.values, j.err = nil, err
		if err != nil {
			continue
		}
		n, rest, ok := next(numbers)
		switch {
		case ok && n == -1 && len(others) > 0:
			j.err = ofJob{said(others[0])}
			numbers, others = rest, others[1:]
		case ok && n > 0 && int64(len(rest)) >= 8*n:
			from := len(all)
			for range n {
				var value int64
				value, rest, _ = next(rest)
				all = append(all, value)
			}
			j.values, numbers = all[from:len(all):len(all)], rest
		default:
			err = errReply
			j.err = err
		}
	}
}

// next is the first integer of those that follow each other in s.
func next(s []byte) (n int64, rest []byte, ok bool) {
	if len(s) < 8 {
		return 0, s, false
	}
	return int64(math.Float64frombits(binary.LittleEndian.Uint64(s))), s[8:], true
}
