package compared

import (
	"context"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
)

// goLimiter counts in fixed windows: all of its tokens come back at once.
func goLimiter() peer {
	return peer{
		name: "go-limiter", module: "github.com/sethvargo/go-limiter",
		how:     "`memorystore`, of which a window of burst times interval begins with a key's first call; by the wall's clock, as it cannot be set",
		ownTime: true,
		make: func(q quota) subject {
			return newGoLimiter(uint64(q.burst), time.Duration(q.burst)*q.interval())
		},
		own: map[string]func() result{
			window: goLimiterWindow, idle: goLimiterIdle, waitEnough: goLimiterWait,
		},
		nonsense: map[string]nonsense{
			rateZero: {written: "Config{Interval: 0, Tokens: 10}", meant: "the default, a second", make: func() (subject, error) { return newGoLimiter(10, 0), nil }},
			rateLess: {written: "Config{Interval: -1s, Tokens: 10}", make: func() (subject, error) { return newGoLimiter(10, -time.Second), nil }},
			burstNil: {written: "Config{Tokens: 0}", meant: "the default, one", make: func() (subject, error) { return newGoLimiter(0, time.Hour), nil }},
			burstBig: {written: "Config{Tokens: 110_000, Interval: 24h}", make: func() (subject, error) { return newGoLimiter(110_000, 24*time.Hour), nil }},
		},
		documented: map[string]string{
			window:      "Documented: it counts tokens per interval, as a fixed window does",
			idle:        "Known as [go-limiter#29](https://github.com/sethvargo/go-limiter/issues/29)",
			raisedBurst: "Documented: `Set` sets the tokens to the limit",
			toAndFro:    "Documented: `Set` sets the tokens to the limit",
		},
	}
}

func storeOf(tokens uint64, interval time.Duration) limiter.Store {
	s, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: interval})
	if err != nil {
		panic(err)
	}
	return s
}

func newGoLimiter(tokens uint64, interval time.Duration) subject {
	store := storeOf(tokens, interval)
	return subject{
		set: func(time.Duration) {},
		take: func(key string) answer {
			_, _, reset, ok, err := store.Take(context.Background(), key)
			return answer{admitted: ok, err: err, wait: func() (time.Duration, bool) { return time.Until(time.Unix(0, int64(reset))), false }}
		},
		change: func(q quota) {
			if err := store.Set(context.Background(), "k", uint64(q.burst), time.Duration(q.burst)*q.interval()); err != nil {
				panic(err)
			}
		},
	}
}

// patient runs a history that real time can spoil, as on a machine that stood
// still meanwhile, until it was not.
func patient(try func() (r result, spoilt bool)) result {
	for range 20 {
		if r, spoilt := try(); !spoilt {
			return r
		}
	}
	return result{notAsked, "the machine was too busy"}
}

// goLimiterWindow: ten an interval of 500 ms, one call at its begin, nine close
// to its end and ten at the next.
func goLimiterWindow() result {
	return patient(func() (result, bool) {
		ctx, store := context.Background(), storeOf(10, 500*time.Millisecond)
		_, _, reset, _, _ := store.Take(ctx, "k")
		end := time.Unix(0, int64(reset))
		time.Sleep(time.Until(end) - 30*time.Millisecond)
		from, admitted := time.Now(), 0
		for time.Now().Before(end) && admitted < 9 {
			if _, _, _, ok, _ := store.Take(ctx, "k"); ok {
				admitted++
			}
		}
		time.Sleep(time.Until(end))
		for range 10 {
			if _, _, _, ok, _ := store.Take(ctx, "k"); ok {
				admitted++
			}
		}
		span := time.Since(from)
		if may := 10 + int(span/(50*time.Millisecond)); admitted > may && span < 100*time.Millisecond {
			return failed("10 tokens each 500 ms: 1 taken at 0, 9 just before 500 ms and 10 at 500 ms: 19 within 100 ms, of 11 or 12"), false
		}
		return ok(), admitted < 19 || span >= 100*time.Millisecond
	})
}

// goLimiterIdle: a hundred thousand an interval of one second.
func goLimiterIdle() result {
	return patient(func() (result, bool) {
		ctx, store := context.Background(), storeOf(100_000, time.Second)
		_, _, reset, _, _ := store.Take(ctx, "k")
		time.Sleep(time.Until(time.Unix(0, int64(reset))))
		admitted, spoilt := 0, false
		for range 100_000 {
			_, _, next, ok, _ := store.Take(ctx, "k")
			if ok {
				admitted++
			}
			spoilt = spoilt || next != reset+uint64(time.Second)
		}
		if admitted != 100_000 {
			return failed("100,000 tokens each second: 1 taken at 0; at 1 s there are %d, which is a second divided by 100,000, in nanoseconds", admitted), spoilt
		}
		return ok(), spoilt
	})
}

// goLimiterWait: who waits until the time that is told.
func goLimiterWait() result {
	return patient(func() (result, bool) {
		ctx, store := context.Background(), storeOf(1, 100*time.Millisecond)
		_, _, reset, _, _ := store.Take(ctx, "k")
		if _, _, _, ok, _ := store.Take(ctx, "k"); ok {
			return result{}, true
		}
		time.Sleep(time.Until(time.Unix(0, int64(reset))))
		for time.Now().UnixNano() < int64(reset) {
		}
		if _, _, _, ok, _ := store.Take(ctx, "k"); !ok {
			return failed("1 token each 100 ms: refused at the time that it told"), false
		}
		return ok(), false
	})
}
