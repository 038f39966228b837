package ringlane_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"sync"

	"ringlane"
)

// ranks runs body as n ranks in one process. A real program is started once for
// each rank and joins with the zero Config.
func ranks(n int, job string, body func(c *ringlane.Comm)) {
	dir, err := os.MkdirTemp("", "ringlane-example-") // mode 0700
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			c, err := ringlane.Join(ringlane.Config{Rank: rank, Size: n, Job: job, Rendezvous: dir})
			if err != nil {
				log.Fatal(err)
			}
			defer c.Close()
			body(c)
		})
	}
	all.Wait()
}

func ExampleAllReduce() {
	ranks(4, "example allreduce", func(c *ringlane.Comm) {
		gradient := []float32{float32(c.Rank()), 1}
		if err := ringlane.AllReduce(c, gradient, gradient, ringlane.Avg); err != nil {
			log.Fatal(err)
		}
		if c.Rank() == 0 {
			fmt.Println(gradient)
		}
	})
	// Output: [1.5 1]
}

func ExampleComm_Group() {
	ranks(4, "example group", func(c *ringlane.Comm) {
		if c.Rank()%2 == 1 {
			return // only listed ranks call Group
		}
		even, err := c.Group(0, 2)
		if err != nil {
			log.Fatal(err)
		}
		defer even.Close()
		sum := []int64{int64(c.Rank())}
		if err := ringlane.AllReduce(even, sum, sum, ringlane.Sum); err != nil {
			log.Fatal(err)
		}
		if even.Rank() == 1 {
			fmt.Printf("rank %d of %d in the group: %d\n", even.Rank(), even.Size(), sum[0])
		}
	})
	// Output: rank 1 of 2 in the group: 2
}

func ExampleSend() {
	ranks(2, "example send", func(c *ringlane.Comm) {
		const tag = 7
		if c.Rank() == 0 {
			if err := ringlane.Send(c, []float64{3.5}, 1, tag); err != nil {
				log.Fatal(err)
			}
			return
		}
		got := make([]float64, 1)
		from, err := ringlane.Recv(c, got, ringlane.AnySource, tag)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(got, "from rank", from)
	})
	// Output: [3.5] from rank 0
}

// Ranks that do not agree on a call all learn who said what.
func ExampleCode() {
	ranks(2, "example mismatch", func(c *ringlane.Comm) {
		data := make([]float32, 8*(c.Rank()+1))
		err := ringlane.AllReduce(c, data, data, ringlane.Sum)
		if c.Rank() == 0 {
			fmt.Println(errors.Is(err, ringlane.Mismatch))
		}
	})
	// Output: true
}
