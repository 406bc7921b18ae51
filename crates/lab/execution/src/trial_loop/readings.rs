//! What had each party used of the CPU at this moment?

use crate::collector::busy_and_steal_us;
use crate::testbed::ServerHandle;
use crate::treatment::{Treatment, cpu_of_process_us};
use crate::workload::Driver;
use toll_record::Cpu;

/// Read at both edges of a window; only differences mean anything.
pub fn read_cpu(server: Option<&ServerHandle>, driver: Option<&Driver>, treatment: &Treatment) -> Cpu {
    let (host_busy_us, host_steal_us) = busy_and_steal_us();
    let (treatment_us, remote_us) = treatment.cpu_us();
    Cpu {
        host_busy_us,
        host_steal_us,
        irq_us: None,
        // No running process's clock is zero: the process is gone.
        server_us: server
            .and_then(|standing| standing.restart_detector.pid())
            .map(cpu_of_process_us)
            .filter(|us| *us > 0),
        driver_us: driver.map_or(0, Driver::cpu_us),
        treatment_us,
        remote_us,
        toll_us: cpu_of_process_us(std::process::id()),
    }
}
