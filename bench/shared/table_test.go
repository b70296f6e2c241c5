package shared

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"agentgw/internal/redistest"
)

var (
	table   = flag.Bool("table", false, "measure, and print a table")
	callers = flag.String("callers", "16,64,256", "how many call at once")
	seconds = flag.Float64("seconds", 1, "length of one run")
	rounds  = flag.Int("rounds", 7, "rounds of each comparison")
)

// What is wanted.
const (
	timesPool  = 2
	timesRated = 3
	addedMost  = 50 * time.Microsecond
)

// run is what a contender did in one run.
type run struct {
	rate   float64 // calls a second
	ours   float64 // processor time of this process, microseconds a call
	server float64 // of the server
}

// TestTableOfSharedDecisions prints how many calls a second each contender makes, and
// what they cost.
func TestTableOfSharedDecisions(t *testing.T) {
	if !*table {
		t.Skip("a measurement, not a check: run it with -table")
	}
	server := redistest.Start(t)
	look := connect(t, server.URL(), 1)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "callers\tcontender\tcalls/s\tµs of a client's processor a call\tof Redis'\tagentgw makes as many times (range)\twanted\t")
	for _, text := range strings.Split(*callers, ",") {
		crowd, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rated := rated(t, server.URL(), crowd)
		contenders := []contender{
			batched(t, server.URL(), 3), pooled(t, server.URL(), 10*runtime.GOMAXPROCS(0)), pooled(t, server.URL(), crowd), rated,
			batched(t, server.URL(), 2), rated,
		}
		// Which of them each is beside, and how many times as many calls that is to make.
		beside, wanted := []int{0, 0, 0, 0, 4, 4}, []float64{0, timesPool, timesPool, timesRated, 0, timesRated}
		runs := make([][]run, len(contenders))
		for round := range *rounds + 1 {
			for i, c := range contenders {
				r := measure(t, look, c, crowd)
				if round > 0 { // the first is for connections and scripts
					runs[i] = append(runs[i], r)
				}
			}
		}
		for i, c := range contenders {
			list := func(of func(run) float64) (list []float64) {
				for _, r := range runs[i] {
					list = append(list, of(r))
				}
				return list
			}
			ratio, verdict := "", ""
			if i != beside[i] {
				var times []float64
				for round, r := range runs[i] {
					times = append(times, runs[beside[i]][round].rate/r.rate)
				}
				ratio = fmt.Sprintf("%.2f (%.2f to %.2f)", median(times), slices.Min(times), slices.Max(times))
				verdict = judged(median(times) >= wanted[i], fmt.Sprintf("≥ %.0f", wanted[i]))
			}
			fmt.Fprintf(out, "%d\t%s\t%.0f\t%.1f\t%.1f\t%s\t%s\t\n", crowd, c.name,
				median(list(func(r run) float64 { return r.rate })), median(list(func(r run) float64 { return r.ours })),
				median(list(func(r run) float64 { return r.server })), ratio, verdict)
		}
	}
	_ = out.Flush()
}

// TestTableOfALoneCaller prints what a decision adds for a caller who is alone.
func TestTableOfALoneCaller(t *testing.T) {
	if !*table {
		t.Skip("a measurement, not a check: run it with -table")
	}
	server := redistest.Start(t)
	ping := connect(t, server.URL(), 1)
	c := batched(t, server.URL(), 3)
	var trips, decisions []time.Duration
	for i := range 20_000 {
		from := time.Now()
		if err := ping.Ping(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		between := time.Now()
		if err := c.call(i); err != nil {
			t.Fatal(err)
		}
		to := time.Now()
		if i >= 1000 {
			trips, decisions = append(trips, between.Sub(from)), append(decisions, to.Sub(between))
		}
	}
	trip, decision := median(trips), median(decisions)
	fmt.Printf("a lone caller, p50: a PING %v, a decision %v, so that it adds a round trip and %v: %s\n",
		trip, decision, decision-trip, judged(decision-trip <= addedMost, fmt.Sprintf("≤ %v", addedMost)))
}

func judged(met bool, wanted string) string {
	if met {
		return wanted + " MET"
	}
	return wanted + " MISSED"
}

// measure has so many callers call for the length of a run.
func measure(t *testing.T, look *redis.Client, c contender, crowd int) run {
	before, ours := serverTime(t, look), ownTime(t)
	from := time.Now()
	var done atomic.Int64
	var all sync.WaitGroup
	for g := range crowd {
		all.Go(func() {
			n := 0
			for i := g * 7919; time.Since(from).Seconds() < *seconds; i++ {
				if err := c.call(i); err != nil {
					t.Error(err)
					return
				}
				n++
			}
			done.Add(int64(n))
		})
	}
	all.Wait()
	took, n := time.Since(from).Seconds(), float64(done.Load())
	return run{
		rate: n / took, ours: float64((ownTime(t) - ours).Microseconds()) / n,
		server: float64((serverTime(t, look) - before).Microseconds()) / n,
	}
}

// serverTime is the processor time that the server has used.
func serverTime(t *testing.T, look *redis.Client) (sum time.Duration) {
	text, err := look.Info(context.Background(), "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			s, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(s * float64(time.Second))
		}
	}
	return sum
}

func ownTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median[T int64 | float64 | time.Duration](list []T) T {
	s := slices.Sorted(slices.Values(list))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
