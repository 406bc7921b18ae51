//! What had each party used of the CPU at this moment?

use crate::collector::busy_and_steal_us;
use crate::testbed::ServerHandle;
use crate::treatment::{Treatment, cpu_of_process_us};
use crate::workload::Driver;
use toll_record::{Clock, Cpu};
use toll_sys::{cpu, process};

/// Read at both edges of a window; only differences mean anything.
pub fn read_cpu(
    server: Option<&ServerHandle>,
    driver: Option<&Driver>,
    treatment: &Treatment,
    clock: Clock,
) -> Cpu {
    let (ticked_busy_us, host_steal_us) = busy_and_steal_us();
    let (host_busy_us, irq_us) = match clock {
        Clock::Real => (ticked_busy_us, None),
        // Ticks of 10 ms are a fortieth of a window there.
        Clock::Counted => (cpu::busy_us().unwrap_or(ticked_busy_us), cpu::interrupts_us()),
    };
    let (treatment_us, remote_us) = treatment.cpu_us();
    let server_pid = server.and_then(|standing| standing.restart_detector.pid());
    Cpu {
        host_busy_us,
        host_steal_us,
        irq_us,
        // No running process's clock is zero: the process is gone.
        server_us: server_pid.map(cpu_of_process_us).filter(|us| *us > 0),
        // On the counted clock the reading itself would be a part of the window.
        server_wait_us: server_pid.filter(|_| clock.is_real()).and_then(process::run_queue_wait_us),
        driver_us: driver.map_or(0, Driver::cpu_us),
        treatment_us,
        remote_us,
        toll_us: cpu_of_process_us(std::process::id()),
    }
}
