package device

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"ringlane/internal/hardware/cuda"
	"ringlane/internal/hardware/cuda/kernels"
	"ringlane/internal/logic/collective"
	"ringlane/internal/run/communicator"
)

// member is what ranks know of each other.
type member struct {
	Boot            string   `json:"boot"` // names the running kernel, so the host
	UUID            [16]byte `json:"uuid"`
	Ordinal         int      `json:"ordinal"` // in its process
	Name            string   `json:"name"`
	Address         string   `json:"address"`
	Capability      [2]int   `json:"capability"`
	MIG             bool     `json:"mig,omitempty"`
	Multiprocessors int      `json:"multiprocessors"`
	Threads         int      `json:"threads"`
	Options         Options  `json:"options"`
}

func (m *member) String() string {
	return fmt.Sprintf("GPU %d (%s, %s)", m.Ordinal, m.Name, m.Address)
}

// Join makes a communicator on GPUs of the ranks of c, with the GPU of that
// ordinal for this one. All ranks call it at once, between the same two
// collectives of c. It has to be closed before c is, or is closed then.
func Join(c *communicator.Comm, ordinal int) (*Comm, error) {
	d := &Comm{comm: c, rank: c.Rank(), size: c.Size(), plans: map[key]*plan{}, schedules: map[scheduleKey]*scheduled{}}
	var override collective.DeviceOverride
	self, err := d.introduce(ordinal, &override)
	if d.members, err = agree(c, self, err); err == nil {
		err = d.connect(override)
	}
	if err != nil {
		d.abandon()
		return nil, err
	}
	d.ending = c.BeforeClose(d.Close)
	d.begin()
	return d, nil
}

// abandon gives back what a join that failed has made.
func (d *Comm) abandon() {
	if d.gpu == nil {
		return
	}
	// The join has failed as it is: what else fails now says nothing more.
	_ = d.order.free(d.gpu.context)
	_ = d.engine.free(d.gpu.context)
	_ = d.release()
	_ = d.free(false)
	_ = d.gpu.release()
}

func (d *Comm) introduce(ordinal int, override *collective.DeviceOverride) (m member, err error) {
	if d.options, *override, err = optionsFromProcess(); err != nil {
		return m, err
	}
	if d.size > kernels.MaxRanks {
		return m, failf(communicator.Argument, "%d ranks are too many for GPUs (at most %d)", d.size, kernels.MaxRanks)
	}
	driver, err := cuda.Open()
	if err != nil {
		return m, err
	}
	all := driver.Devices()
	if ordinal < 0 || ordinal >= len(all) {
		return m, failf(communicator.Argument, "there is no GPU %d: the driver shows this process %d (does CUDA_VISIBLE_DEVICES hide it?)", ordinal, len(all))
	}
	g := all[ordinal]
	if !g.MapsHost || !g.UnifiedAddressing {
		return m, failf(communicator.System, "%v has no address space in common with the processor, which Ringlane needs", g)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return m, err
	}
	if d.gpu, err = retain(driver, g); err != nil {
		return m, err
	}
	return member{
		Boot: strings.TrimSpace(string(boot)),
		UUID: g.UUID, Ordinal: ordinal, Name: g.Name, Address: g.Address.String(), Capability: g.Capability, MIG: g.MIG,
		Multiprocessors: g.Multiprocessors, Threads: g.MaxThreads, Options: d.options,
	}, nil
}

// connect is the join once all ranks have their GPUs.
func (d *Comm) connect(override collective.DeviceOverride) error {
	for r := range d.members {
		m := &d.members[r]
		if m.Options != d.options {
			return failf(communicator.Mismatch, "join: rank %d is set up with %+v for its GPU, rank %d with %+v (give all ranks the same RINGLANE variables)", r, m.Options, d.rank, d.options)
		}
		if m.Boot != d.members[d.rank].Boot {
			return failf(communicator.Argument, "join: rank %d is on another machine (GPUs of one machine only)", r)
		}
	}
	// Parts on the GPU fit either layout: one holds for all pairs, and whether
	// some of them meet in host memory shows later.
	layouts, most := map[bool]collective.DeviceLayout{}, 0
	for _, host := range []bool{false, true} {
		l, err := collective.LayOutDevice(d.options.Window, d.size, host)
		if err != nil {
			return failf(communicator.Argument, "join: RINGLANE_DEVICE_WINDOW: %v", err)
		}
		layouts[host], most = l, max(most, l.Bytes())
	}
	bytes := uint64(most)
	judged, straight := d.judge()
	mine, err := d.allocate(bytes, straight)
	offers, err := agree(d.comm, mine, err)
	if err != nil {
		return err
	}
	line, err := d.choosePaths(judged, offers)
	if err != nil {
		return err
	}
	host := false
	for _, p := range d.paths {
		host = host || p.Kind == Host
	}
	layout := layouts[host]
	d.geometry = geometryOf(layout)
	bytes = uint64(layout.Bytes())
	d.engine.place(collective.LayOutEngine(d.options.Window, d.size, layout, host), bytes)
	if more := d.engine.bytes(); more > 0 {
		bytes = d.engine.at + more
	}
	at, err := d.stage(bytes)
	places, err := agree(d.comm, at, err)
	if err != nil {
		return err
	}
	if err := d.dropWindow(); err != nil { // all ranks have given it up by now
		return failf(communicator.System, "join: %v", err)
	}
	staged, err := d.reachHosts(places, bytes)
	if err != nil {
		return err
	}
	if staged != 0 {
		line = min(line, staged)
	}
	d.devices = collective.Devices{Ranks: d.size, Host: host, Line: line, Layout: layout, Engine: d.engine.layout, DeviceOverride: override}
	d.devices.Blocks, d.devices.Threads, d.devices.Shared = d.room()
	if err := d.survey(line); err != nil {
		return err
	}
	err = d.clear()
	if err == nil {
		err = d.order.make(d.gpu.context)
	}
	if err == nil {
		err = d.equip()
	}
	for p := range d.size {
		if p != d.rank && err == nil {
			mem := d.comm.PeerMemory(p, offers[p].Board, boardBytes)
			if d.memory.peers[p].board.mem = mem; mem == nil {
				err = fmt.Errorf("the memory of rank %d cannot be seen", p)
			}
		}
	}
	if d.engine.layout.Slots > 0 && err == nil {
		d.settlement = newSettlement(d.rank, d.memory.peers[0].board)
	}
	// The last word also tells everyone that all parts are clear.
	_, err = agree(d.comm, struct{}{}, err)
	return err
}

func geometryOf(l collective.DeviceLayout) kernels.Geometry {
	return kernels.Geometry{LineHalf: uint64(l.Half), Slots: uint32(l.Slots), SlotBytes: uint32(l.SlotBytes), BulkBlocks: uint32(l.BulkBlocks)}
}

// room is how many blocks of how many threads every GPU can run at once for each
// of the ranks on it, and whether there are several on any: kernels that wait for
// each other must all be running.
func (d *Comm) room() (blocks, threads int, shared bool) {
	blocks, threads = kernels.MaxBlocks, 1024
	for r := range d.members {
		m, sharers := &d.members[r], 0
		for o := range d.members {
			if d.members[o].UUID == m.UUID {
				sharers++
			}
		}
		shared = shared || sharers > 1
		blocks = min(blocks, max(1, m.Multiprocessors/sharers))
		threads = min(threads, m.Threads)
	}
	return blocks, threads, shared
}

// sameGPU reports whether two ranks are on one GPU, or on one MIG instance.
func (d *Comm) sameGPU(a, b int) bool {
	return bytes.Equal(d.members[a].UUID[:], d.members[b].UUID[:])
}
